// Command filtergolden prints the golden corpus of the filter language: expressions and what the Go
// module go-bexpr answers for one fixed row.
//
//	go run . > ../../projections/src/filter/golden_v1.json
//
// The corpus of a version is frozen once it is checked in; run this only for a new version. The row
// is mirrored, field by field, in projections/src/filter/golden_test.rs.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	bexpr "github.com/hashicorp/go-bexpr"
)

type status string

type port struct {
	Label string
	Value int
}

type group struct {
	Name  string
	Count int
	Meta  map[string]string
	Ports []port
}

type job struct {
	Name     string
	Priority int
	Periodic *port
	Groups   []*group
}

type row struct {
	ID      string
	Count   int
	Big     uint64
	Ratio   float64
	Small   float32
	On      bool
	Status  status
	Empty   string
	Path    string
	Tags    []string
	NilTags []string
	NoTags  []string
	Numbers []int
	Bools   []bool
	Meta    map[string]string
	NilMeta map[string]string
	NoMeta  map[string]string
	Flags   map[string]bool
	Sets    map[string][]string
	Job     *job
	NilJob  *job
	NilText *string
	Text    *string
	Groups  []group
	Named   map[string]group
	Blob    []byte
	not     int
}

func theRow() row {
	text := "text"
	web := group{Name: "web", Count: 3, Meta: map[string]string{"tier": "front"},
		Ports: []port{{"http", 80}, {"https", 443}}}
	db := group{Name: "db", Count: 1}
	return row{
		ID: "0b156e3e-bb39", Count: -7, Big: 18446744073709551615, Ratio: 0.5, Small: 1.25, On: true,
		Status: "running", Path: "v1/jobs", Tags: []string{"a", "b/c", "Ünï"}, NoTags: []string{},
		Numbers: []int{1, 2, 16}, Bools: []bool{true},
		Meta:   map[string]string{"owner": "ops", "a.b/c": "dotted", "empty": ""},
		NoMeta: map[string]string{}, Flags: map[string]bool{"x": true, "y": false},
		Sets: map[string][]string{"one": {"p", "q"}, "none": nil},
		Job:  &job{Name: "cache", Priority: 50, Groups: []*group{&web, &db}},
		Text: &text, Groups: []group{web, db},
		Named: map[string]group{"w": web, "d": db}, Blob: []byte("bytes"),
	}
}

type answer struct {
	Expr   string `json:"expr"`
	Answer string `json:"answer"`
}

// ask returns yes, no, syntax, error, or "" where Go itself panics or depends on map order.
func ask(expr string) (result string) {
	defer func() {
		if recover() != nil {
			result = ""
		}
	}()
	evaluator, err := bexpr.CreateEvaluator(expr)
	if err != nil {
		return "syntax"
	}
	for i := 0; i < 8; i++ {
		yes, err := evaluator.Evaluate(theRow())
		now := "no"
		if err != nil {
			now = "error"
		} else if yes {
			now = "yes"
		}
		if i > 0 && now != result {
			return ""
		}
		result = now
	}
	return result
}

func main() {
	var all []string
	all = append(all, written()...)
	all = append(all, crossed()...)
	g := generator{rand.New(rand.NewSource(1))}
	for i := 0; i < 900; i++ {
		all = append(all, g.expr(3))
	}
	for i := 0; i < 700; i++ {
		all = append(all, g.damaged())
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	seen := map[string]bool{}
	fmt.Fprintln(out, "[")
	first := true
	for _, expr := range all {
		result := ask(expr)
		if result == "" || seen[expr] {
			continue
		}
		seen[expr] = true
		line := &strings.Builder{}
		encoder := json.NewEncoder(line)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(answer{expr, result}); err != nil {
			panic(err)
		}
		if !first {
			fmt.Fprintln(out, ",")
		}
		first = false
		fmt.Fprint(out, strings.TrimSpace(line.String()))
	}
	fmt.Fprintln(out, "\n]")
}
