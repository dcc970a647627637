package console

// Table writes texts in aligned columns under titles, as the other screens do. A row must have a text for each title.
func (s *Screen) Table(titles []string, rows [][]string) {
	var all [][]cell
	for _, row := range rows {
		var cells []cell
		for _, text := range row {
			cells = append(cells, left(text))
		}
		all = append(all, cells)
	}
	s.table(titles, all)
}

// NotRead writes what couldn't be read, as the other screens do.
func (s *Screen) NotRead(all []string) { s.unread(all) }

// Note writes a text in lines that fit, under a mark.
func (s *Screen) Note(mark, text string) { s.wrap(mark, plain, text) }

// Err returns the first error of writing. Nothing was written after it.
func (s *Screen) Err() error { return s.err }
