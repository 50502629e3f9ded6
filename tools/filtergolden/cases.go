package main

import (
	"fmt"
	"math/rand"
	"strings"
)

// written are the cases somebody thought of.
func written() []string {
	return strings.Split(strings.TrimSpace(`
ID == "0b156e3e-bb39"
ID==0b156e3e-bb39
Status == running
Status==running
Status  !=  "dead"
Status matches "^run"
Status not matches "^run"
Status contains "unn"
Status not contains "unn"
"unn" in Status
"unn" not in Status
running in Status
not Status == running
not not Status == running
not not not Status == running
not == 1
not.x == 1
and == 1
or == 1
any == 1
is is nil
in in in
Count == -7
Count == "-7"
Count == -7.5
Count == 0x7
Count == "-0x7"
Count == "-0b111"
Count == "-07"
Count == "-0o7"
Count == "-0_7"
Count == "+7"
Count == "9223372036854775808"
Count == seven
Count == ""
Big == 18446744073709551615
Big == 18446744073709551616
Big == -1
Ratio == 0.5
Ratio == .5
Ratio == "5e-1"
Ratio == "1e999"
Ratio == "inf"
Ratio == "nan"
Ratio == "-nan"
Ratio == 5.
Ratio == 00.5
Small == 1.25
Small == "1e39"
On == true
On == T
On == 1
On == yes
On
On and On
Empty == ""
Empty is empty
Empty is not empty
Empty is nil
Path == "/v1/jobs"
Path == "v1/jobs"
Path == `+"`/v1/jobs`"+`
Path == v1/jobs
Path contains "/v1"
Path matches "/v1"
Path matches "^/v1"
Path == "/v1//jobs"
Path == "/v1/jo bs"
a in Tags
"a" in Tags
"b/c" in Tags
"/b/c" in Tags
"z" not in Tags
Tags contains a
Tags contains "Ünï"
Tags is empty
Tags is nil
Tags is not nil
Tags == a
Tags matches a
Tags.0 == a
Tags[0] == a
Tags["0"] == a
Tags[ "0" ] == a
Tags.00 == a
Tags["0x1"] == "b/c"
Tags["-1"] == a
Tags[""] == a
Tags.9 == a
Tags.x == a
Tags.0.x == a
NilTags is empty
NilTags is nil
NilTags contains a
NilTags.0 == a
NoTags is empty
NoTags is nil
NoTags contains a
1 in Numbers
"0x10" in Numbers
x in Numbers
"99999999999999999999" in Numbers
true in Bools
x in Bools
Meta.owner == ops
Meta["owner"] == ops
Meta["a.b/c"] == dotted
Meta.missing == x
Meta.missing != x
Meta.missing is empty
Meta.missing is not empty
Meta.missing is nil
Meta.missing is not nil
Meta.missing matches x
Meta.missing not matches x
x in Meta.missing
x not in Meta.missing
Meta.missing contains x
Meta.missing not contains x
Meta.missing.more == x
Meta.empty is empty
Meta is empty
Meta is nil
owner in Meta
Meta contains owner
"a.b/c" in Meta
"/Meta/owner" == ops
"/Meta/a.b~1c" == dotted
"/Meta/owner" is empty
"/Tags/0" == a
"/" == x
"" == x
"/Missing" == x
NilMeta.x == y
NilMeta.x is nil
NilMeta is empty
NilMeta is nil
x in NilMeta
NoMeta is nil
NoMeta is empty
Flags.x == true
Flags.y == true
Flags.z == true
Sets.one contains p
Sets.none is nil
Sets.gone is nil
Sets.gone contains p
Job is nil
Job is not nil
Job == x
Job is empty
Job.Name == cache
Job.Priority == 50
Job.Periodic is nil
Job.Periodic is not nil
Job.Periodic.Value == 1
Job.Groups.0.Name == web
Job.Groups.1.Count == 1
Job.name == cache
NilJob is nil
NilJob is not nil
NilJob.Name == x
NilJob is empty
NilJob == x
NilText is nil
NilText == x
NilText is empty
Text == text
Text is nil
Text is empty
Text matches te
Groups is empty
Groups contains web
Groups.0.Meta.tier == front
Groups.1.Meta.tier == front
Groups.1.Meta is nil
Blob matches "^by"
Blob is empty
Blob == bytes
Blob contains "98"
not_there == 1
not_there is nil
Status.x == 1
any Tags as t { t == a }
all Tags as t { t != z }
any Tags as i, t { i == 0 and t == a }
any Tags as i, _ { i == 2 }
any Tags as _, t { t contains "c" }
any Tags as _, _ { t == a }
any Tags as x, x { x == a }
any NoTags as x, x { x == a }
any NilTags as x { x == a }
all NilTags as x { x == a }
any Meta as k { k == owner }
any Meta as k, v { k == owner and v == ops }
any Meta as _, v { v == dotted }
all Meta as k, _ { k is not empty }
all Meta as k { k.x == 1 }
any Meta.missing as k { k == 1 }
all Meta.missing as k { k == 1 }
any Groups as g { g.Name == web and g.Count == 3 }
any Groups as g { any g.Ports as p { p.Value == 443 } }
all Groups as g { g.Count == 3 or g.Name == db }
any Groups as g { g.Meta.tier == front }
any Job.Groups as g { g.Name == db }
any Named as k, g { k == w and g.Count == 3 }
any Named as k, g { any g.Ports as i, p { i == 1 and p.Label == https } }
any "/Groups" as g { g.Name == web }
any "/Meta" as k, v { v == ops }
any Job as x { x == 1 }
any NilJob as x { x == 1 }
any Status as x { x == 1 }
any Flags as k, v { v == true }
any Tags as Status { Status == a }
any Tags as t {t==a }
any Tags as t {t==a}
any Numbers as n { n == 1}
any Numbers as n { n == 1 }
any Numbers as n, m { n == 1 }
any Tags as t { t == a } and On == true
On == true and any Tags as t { t == a }
On == true and (any Tags as t { t == a })
(any Tags as t { t == a }) and On == true
On == false or any Tags as t { t == a }
any Tags as t { t == z } or On == true
not any Tags as t { t == z }
not (any Tags as t { t == z })
any Tags as t { any Tags as u { t == u } }
any Tags as t { any t as u { u == 1 } }
any Tags as t { missing == 1 }
any Tags { t == a }
any Tags as { t == a }
any Tags as t t == a
(On == true)
((On == true))
( On == true )
(On == true
On == true)
(On == true) and (Status == running)
(On == true)and(Status == running)
(On == true) or(Status == running)
On == true and Status == running or Count == 1
On == false and Status == running or Count == -7
Count == 1 or On == true and Status == dead
Count == 1 or (On == true and Status == running)
On == true or missing == 1
On == false and missing == 1
missing == 1 or On == true
On == true and
and On == true
or
not
On == true or or On == true
  On == true  
	On == true
On == "true
On == 'true'
On == `+"`true`"+`
On == `+"`true"+`
Status == "run\u006eing"
Status == "run\x6eing"
Status == "run\156ing"
Status == "a\"b"
Status == "\q"
Status == "\'"
Status == "a\\b"
Status == `+"`run\\x6eing`"+`
Status = running
Status === running
Status > running
Status == running;
Status == run ning
Status is
Status is not
Status is empt
Status is emptyx
Status is not  empty
Status is notempty
Status isempty
Status in
in Status
3 in Numbers
-3 in Numbers
03 in Numbers
3x in Numbers
Meta.owner.x == 1
Meta. == 1
Meta..owner == ops
.Meta == 1
Meta[owner] == ops
Meta["owner" == ops
Meta["owner"]x == ops
Meta["owner"].x == ops
Meta[`+"`owner`"+`] == ops
Status == Meta.owner
ops == Meta.owner
Meta.owner == "ops" and Tags is not empty and Job.Priority == 50
Status matches "("
Status matches "a**"
Status matches "\d"
Status matches `+"`\\d`"+`
Status matches `+"`^\\w+$`"+`
Status matches `+"`\\bruns?\\b`"+`
Status matches `+"`\\brunning\\b`"+`
Status matches `+"`(?i)RUN`"+`
Status matches `+"`(?x)run`"+`
Status matches `+"`(?P<a>r)un`"+`
Status matches `+"`(?<a>r)un`"+`
Status matches `+"`(?=r)un`"+`
Status matches `+"`r{1}un{2}ing`"+`
Status matches `+"`r{1001}`"+`
Status matches `+"`r{a}`"+`
Status matches `+"`r{,2}`"+`
Status matches `+"`{r`"+`
Status matches `+"`[[]`"+`
Status matches `+"`[]r]un`"+`
Status matches `+"`[^]]un`"+`
Status matches `+"`[a&&r]un`"+`
Status matches `+"`[[:alpha:]]+`"+`
Status matches `+"`[[:alpha]+`"+`
Status matches `+"`[r-]un`"+`
Status matches `+"`[z-a]`"+`
Status matches `+"`\\Qrun\\Eni`"+`
Status matches `+"`\\162un`"+`
Status matches `+"`\\x72un`"+`
Status matches `+"`\\x{72}un`"+`
Status matches `+"`\\1`"+`
Status matches `+"`\\<run`"+`
Status matches `+"`run\\z`"+`
Status matches `+"`running\\z`"+`
Status matches `+"`running\\Z`"+`
Status matches `+"`\\Arun`"+`
Status matches `+"`\\p{L}+`"+`
Status matches `+"`\\pL`"+`
Status matches `+"`\\p{Nope}`"+`
Status matches `+"`[\\d\\w]+`"+`
Status matches `+"`[\\D]`"+`
Status matches `+"`[^\\D]`"+`
Status matches `+"`r+?un`"+`
Status matches `+"`r+??un`"+`
Status matches `+"`r|x|`"+`
Status matches `+"`)`"+`
Status matches `+"`]`"+`
Status matches `+"`}`"+`
Status matches `+"`r_?un`"+`
Status matches `+"`\\_?r`"+`
Tags.2 matches `+"`^\\w+$`"+`
Tags.2 matches `+"`^.{3}$`"+`
Tags.2 matches `+"`(?i)ünÏ`"+`
`), "\n")
}

var (
	selectors = []string{"ID", "Count", "Big", "Ratio", "Small", "On", "Status", "Empty", "Path",
		"Tags", "NilTags", "NoTags", "Numbers", "Bools", "Meta", "NilMeta", "NoMeta", "Flags", "Sets",
		"Job", "NilJob", "NilText", "Text", "Groups", "Named", "Blob", "Meta.owner", "Meta.gone",
		"Job.Name", "Job.Periodic", "Groups.0.Name", "Gone", "Named.w.Count", `"/Meta/owner"`}
	literals  = []string{"a", "1", "-7", "0.5", "true", `"running"`, `""`, `"v1"`, "`x`", "x.y"}
	operators = []string{"==", "!=", "contains", "not contains", "matches", "not matches"}
	states    = []string{"is empty", "is not empty", "is nil", "is not nil"}
)

// crossed is every selector with every operator.
func crossed() (out []string) {
	for i, selector := range selectors {
		for j, operator := range operators {
			out = append(out, fmt.Sprintf("%s %s %s", selector, operator, literals[(i+j)%len(literals)]))
		}
		for _, state := range states {
			out = append(out, selector+" "+state)
		}
		out = append(out, literals[i%len(literals)]+" in "+selector)
		out = append(out, literals[(i+3)%len(literals)]+" not in "+selector)
		out = append(out, fmt.Sprintf("any %s as v { v == %s }", selector, literals[i%len(literals)]))
		out = append(out, fmt.Sprintf("all %s as k, v { v != %s }", selector, literals[i%len(literals)]))
	}
	return out
}

type generator struct{ *rand.Rand }

func (g generator) pick(from []string) string { return from[g.Intn(len(from))] }

func (g generator) expr(depth int) string {
	if depth == 0 || g.Intn(4) == 0 {
		switch g.Intn(4) {
		case 0:
			return g.pick(selectors) + " " + g.pick(states)
		case 1:
			return g.pick(literals) + g.pick([]string{" in ", " not in "}) + g.pick(selectors)
		default:
			return g.pick(selectors) + " " + g.pick(operators) + " " + g.pick(literals)
		}
	}
	switch g.Intn(6) {
	case 0:
		return "not " + g.expr(depth-1)
	case 1:
		return "(" + g.expr(depth-1) + ")"
	case 2:
		return fmt.Sprintf("%s %s as %s { %s }", g.pick([]string{"any", "all"}), g.pick(selectors),
			g.pick([]string{"v", "k, v", "_, v", "k, _"}), g.expr(depth-1))
	case 3:
		return g.expr(depth-1) + " or " + g.expr(depth-1)
	default:
		return g.expr(depth-1) + " and " + g.expr(depth-1)
	}
}

// damaged is an expression with one small piece missing, doubled or replaced.
func (g generator) damaged() string {
	expr := g.expr(2)
	at := g.Intn(len(expr))
	switch g.Intn(3) {
	case 0:
		return expr[:at] + expr[at+1:]
	case 1:
		return expr[:at] + expr[at:at+1] + expr[at:]
	default:
		return expr[:at] + g.pick([]string{" ", ".", "\"", "(", ")", "[", "]", "0", "-", "/", "!", "é"}) +
			expr[at+1:]
	}
}
