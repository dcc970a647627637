package console

// Table writes texts in aligned columns under titles, as the other screens do. A row must have a text for each title.
func (s *Screen) Table(titles []string, rows [][]string) error {
	var all [][]cell
	for _, row := range rows {
		var cells []cell
		for _, text := range row {
			cells = append(cells, left(text))
		}
		all = append(all, cells)
	}
	s.table(titles, all)
	return s.err
}

// NotRead writes what couldn't be read, as the other screens do.
func (s *Screen) NotRead(all []string) error {
	s.unread(all)
	return s.err
}

// Note writes a text in lines that fit, under a mark.
func (s *Screen) Note(mark, text string) error {
	s.wrap(mark, plain, text)
	return s.err
}
