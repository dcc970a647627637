package scenario

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestEveryScenarioThatComesWithTheProgramIsValidInEverySize(t *testing.T) {
	names := Names()
	if len(names) < 12 {
		t.Fatalf("only %d scenarios: %v", len(names), names)
	}
	for _, name := range names {
		for _, size := range []string{"small", "full"} {
			s, err := Read(name, []string{"size=" + size})
			if err != nil {
				t.Errorf("%s, size %s: %v", name, size, err)
				continue
			}
			if s.Name != name || s.Size != size {
				t.Errorf("%s says it is %s, size %s", name, s.Name, s.Size)
			}
			if len(s.Thresholds) == 0 {
				t.Errorf("%s checks nothing", name)
			}
		}
	}
}

const minimal = `
schema: tenure.dev/bench/scenario/v1
name: x
summary: y
load: {arrivals: burst, count: 10}
sizes: {small: {}, full: {load.count: 20}}
`

func TestSettingsWinOverTheProfileAndTheProfileOverTheFile(t *testing.T) {
	cases := map[string]struct {
		settings []string
		want     int
	}{
		"nothing":             {nil, 10},
		"a profile":           {[]string{"size=full"}, 20},
		"a setting":           {[]string{"load.count=30", "size=full"}, 30},
		"a field by its name": {[]string{"count=40"}, 40},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(minimal), c.settings)
			must.Succeed(t, err)
			if s.Load.Count != c.want {
				t.Errorf("count %d, want %d", s.Load.Count, c.want)
			}
		})
	}
}

func TestWhatCanNotBeIsRefusedWithTheFieldNamed(t *testing.T) {
	steady := []string{"clusters=2", "arrivals=constant", "count=0", "duration=5s", "rate=3"}
	cases := map[string]struct {
		yaml     string // appended to the minimal file
		settings []string
		want     string
	}{
		"unknown field":          {yaml: "loda: {}", want: "loda"},
		"unknown setting":        {settings: []string{"load.cuont=3"}, want: "cuont"},
		"unknown short setting":  {settings: []string{"cuont=3"}, want: "cuont"},
		"setting below no field": {settings: []string{"lod.count=3"}, want: "lod.count"},
		"setting without value":  {settings: []string{"count"}, want: `"count"`},
		"unknown size":           {settings: []string{"size=huge"}, want: "size"},
		"text for a number": {settings: []string{"rounds=2", "count=many"},
			want: "setting count=many: load.count: must be of type int, not string"},
		"a field that isn't there": {settings: []string{"rounds=2", "foo=1"}, want: `setting foo=1: unknown field "foo"`},
		"number for a duration":    {settings: []string{"limit=5"}, want: "duration"},
		"duration without a unit":  {settings: []string{`limit="5"`}, want: "5"},
		"negative count":           {settings: []string{"count=-1"}, want: "load.count"},
		"no replica":               {settings: []string{"replicas=0"}, want: "fleet.replicas"},
		"three shards":             {settings: []string{"shardsPerCluster=3"}, want: "fleet.shardsPerCluster"},
		"unknown arrivals":         {settings: []string{"arrivals=sometimes"}, want: "load.arrivals"},
		"burst with a rate":        {settings: []string{"rate=3"}, want: "load.rate"},
		"constant without a rate":  {settings: []string{"arrivals=constant", "count=0", "duration=5s"}, want: "load.rate"},
		"unknown storage":          {settings: []string{"storage=tape"}, want: "fleet.storage"},
		"unknown reference":        {yaml: "compare: [ceiling]", want: "compare[0]"},
		"reference twice":          {yaml: "compare: [stock, stock]", want: "compare[1]"},
		"slow without slowdown":    {yaml: "compare: [slow]", want: "compare[0]"},
		"a reference with too many workers": {yaml: "compare: [stock]", settings: []string{"replicas=2", "fleet.workers=501"},
			want: "fleet.workers"},
		"unknown step":       {yaml: "steps: [{after: 1s, do: dance}]", want: "steps[0].do"},
		"a sweep that falls": {yaml: "sweep: [2, 1]", want: "sweep[1]"},
		"rates with steps": {yaml: "steps: [{after: 1s, do: join}]", want: "load.rates",
			settings: []string{"arrivals=constant", "count=0", "duration=5s", "load.rates=[1,2]", "load.slo=1s"}},
		"a threshold of no size": {yaml: "thresholds: [{figure: a, max: 1, why: b, sizes: [ful]}]",
			want: "thresholds[0].sizes"},
		"steps out of order": {yaml: "steps: [{after: 2s, do: join}, {after: 1s, do: join}]", want: "steps[1].after"},
		"everybody leaves": {yaml: "steps: [{after: 1s, do: leave}, {after: 1s, do: kill}, {after: 2s, do: kill}]",
			want: "steps[2].do"},
		"the only cluster dies": {yaml: "steps: [{after: 1s, do: pause-cluster}, {after: 2s, do: resume-cluster}]",
			want: "steps[0].do"},
		"a cluster stays dead": {yaml: "steps: [{after: 1s, do: pause-cluster}]",
			settings: []string{"clusters=2"}, want: "steps"},
		"compare in a sweep":       {yaml: "compare: [stock]\nsweep: [1]", want: "compare"},
		"threshold without bound":  {yaml: "thresholds: [{figure: a, why: b}]", want: "thresholds[0].max"},
		"threshold without reason": {yaml: "thresholds: [{figure: a, max: 1}]", want: "thresholds[0].why"},
		"turns too short":          {settings: []string{"tracingTurns=500ms"}, want: "fleet.tracingTurns"},
		"turns without samples":    {settings: []string{"tracingTurns=2s", "samples=false"}, want: "fleet.tracingTurns"},
		"turns beside a reference": {yaml: "compare: [stock]", settings: []string{"tracingTurns=2s"}, want: "compare"},
		"a closed load with a due": {settings: []string{"arrivals=closed", "due=together"}, want: "load.arrivals"},
		"a closed load at a rate":  {settings: []string{"arrivals=closed", "rate=3"}, want: "load.rate"},
		"unknown kind":             {settings: []string{"kind=cows"}, want: "load.kind"},
		"due Deployments":          {settings: []string{"kind=deployments", "due=together"}, want: "load.kind"},
		"Ats that drift":           {yaml: "steps: [{after: 1s, do: drift}]", want: "steps[0].do"},
		"a floor of Deployments":   {yaml: "compare: [floor]", settings: []string{"kind=deployments"}, want: "compare[0]"},
		"a rate beside rates": {settings: []string{"arrivals=constant", "count=0", "duration=5s", "rate=3", "rates=[4]",
			"slo=1s"}, want: "load.rate"},
		"rates that fall": {settings: []string{"arrivals=constant", "count=0", "duration=5s", "rates=[4, 3]",
			"slo=1s"}, want: "load.rates[1]"},
		"rates without an SLO": {settings: []string{"arrivals=constant", "count=0", "duration=5s", "rates=[3, 4]"},
			want: "load.slo"},
		"an SLO without rates": {settings: []string{"arrivals=constant", "count=0", "duration=5s", "rate=3", "slo=1s"},
			want: "load.slo"},
		"rates in rounds": {settings: []string{"arrivals=constant", "count=0", "duration=5s", "rates=[3, 4]",
			"slo=1s", "rounds=2"}, want: "load.rates"},
		"nothing arrives, unsaid":  {settings: []string{"arrivals=none", "count=0", "duration=5s"}, want: "unwitnessed"},
		"unknown noise":            {yaml: "noises: [loud]", settings: steady, want: "noises[0]"},
		"a noise twice":            {yaml: "noises: [late, late]", settings: steady, want: "noises[1]"},
		"a noise in a burst":       {yaml: "noises: [late]", settings: []string{"clusters=2"}, want: "noises"},
		"a noise without others":   {yaml: "noises: [late]", settings: steady[1:], want: "noises"},
		"nothing to be added":      {yaml: "noises: [added]", settings: steady, want: "backlog"},
		"no backlog to be due":     {yaml: "noises: [backlog]", settings: steady, want: "backlog"},
		"negative changes":         {settings: append([]string{"preload=5", "changes=-1"}, steady...), want: "load.changes"},
		"negative finished":        {settings: append([]string{"finished=-1"}, steady...), want: "load.finished"},
		"changes of nothing":       {settings: append([]string{"changes=9"}, steady...), want: "load.changes"},
		"changes without a length": {settings: []string{"preload=5", "changes=9"}, want: "load.changes"},
		"changes nobody counts": {settings: append([]string{"preload=5", "changes=9", "samples=false"}, steady...),
			want: "load.changes"},
		"unserved without changes": {yaml: "compare: [unserved]", want: "compare[0]"},
		"apart from nothing":       {yaml: "compare: [apart]", want: "compare[0]"},
		"aliases with samples":     {settings: []string{"kubeconfigs=5"}, want: "fleet.samples"},
		"aliases beside a floor": {yaml: "compare: [floor]", settings: []string{"kubeconfigs=5", "samples=false"},
			want: "fleet.kubeconfigs"},
		"another name":          {settings: []string{"name=y"}, want: "setting name=y: a report is judged"},
		"noisy without a noise": {settings: []string{"kubeconfigs=5", "samples=false", "noisy=2"}, want: "noisy"},
		"all are noisy": {yaml: "noises: [mixed]",
			settings: append([]string{"noisy=2"}, steady...), want: "noisy"},
		"several have a backlog": {yaml: "noises: [backlog]\nbacklog: 9",
			settings: append([]string{"kubeconfigs=5", "samples=false", "noisy=2"}, steady...), want: "noises"},
		"all are apart": {yaml: "noises: [mixed]\ncompare: [apart]",
			settings: append([]string{"noisy=2"}, steady...), want: "compare[0]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(minimal+c.yaml), c.settings)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a complaint about %s", err, c.want)
			}
		})
	}
}

func TestAScenarioIsWrittenAsItIsRead(t *testing.T) {
	s, err := Read("crash", nil)
	must.Succeed(t, err)
	data, err := json.Marshal(s)
	must.Succeed(t, err)
	var again Scenario
	must.Succeed(t, json.Unmarshal(data, &again))
	expect.Equal(t, "written and read", s, again)
	if s.Fleet.LeaseDuration.D() != 5*time.Second {
		t.Errorf("lease duration %v", s.Fleet.LeaseDuration)
	}
}

func TestAnUnknownNameListsTheKnownOnes(t *testing.T) {
	_, err := Read("at-brust", nil)
	if err == nil || !strings.Contains(err.Error(), "at-burst") {
		t.Errorf("got %v, want the list of scenarios", err)
	}
}
