use super::super::diagnostic::SourceText;
use super::super::eval::{Evaluator, Scope};
use super::Functions;

fn eval(text: &str) -> Result<String, String> {
    let expr = hcl_edit::parser::parse_expr(text).map_err(|e| e.to_string())?;
    let source = SourceText::new("t", text);
    let functions = Functions::Server;
    let value =
        Evaluator::new(&source, &functions, &Default::default()).eval(&expr, &Scope::default());
    value
        .map(|v| v.to_json().to_string())
        .map_err(|d| d.to_string())
}

pub(super) const CALLS: &[(&str, &str)] = &[
    ("abs(-3)", "3"),
    ("ceil(1.2)", "2"),
    ("floor(-1.2)", "-2"),
    ("log(8, 2)", "3"),
    ("max(1, 5, 3)", "5"),
    ("min([4, 2]...)", "2"),
    ("parseint(\"ff\", 16)", "255"),
    ("pow(2, 10)", "1024"),
    ("signum(-9)", "-1"),
    ("chomp(\"a\\n\\n\")", "\"a\""),
    (
        "format(\"%s-%03d %q %.2f%%\", \"a\", 7, \"b\", 1.5)",
        r#""a-007 \"b\" 1.50%""#,
    ),
    (
        "format(\"%v %5s|%-5s|\", [1], \"a\", \"b\")",
        "\"[1]     a|b    |\"",
    ),
    ("formatlist(\"%s!\", [\"a\", \"b\"])", r#"["a!","b!"]"#),
    ("indent(2, \"a\\nb\")", "\"a\\n  b\""),
    ("join(\",\", [\"a\", 1])", "\"a,1\""),
    ("lower(\"ÄB\")", "\"äb\""),
    ("upper(\"a\")", "\"A\""),
    ("title(\"hello big world\")", "\"Hello Big World\""),
    ("replace(\"1+2\", \"+\", \"-\")", "\"1-2\""),
    ("replace(\"a1b2\", \"/[0-9]/\", \"\")", "\"ab\""),
    ("regex_replace(\"foobar\", \"o+\", \"0\")", "\"f0bar\""),
    ("reverse([1, 2])", "[2,1]"),
    ("split(\",\", \"a,b\")", r#"["a","b"]"#),
    ("strlen(\"äö\")", "2"),
    ("strrev(\"abc\")", "\"cba\""),
    ("substr(\"hello\", -3, 2)", "\"ll\""),
    ("substr(\"hello\", 1, -1)", "\"ello\""),
    ("trim(\"?!a!?\", \"!?\")", "\"a\""),
    ("trimprefix(\"xa\", \"x\")", "\"a\""),
    ("trimsuffix(\"ax\", \"x\")", "\"a\""),
    ("trimspace(\" a \")", "\"a\""),
    ("chunklist([1, 2, 3], 2)", "[[1,2],[3]]"),
    ("coalesce(null, \"\", \"b\")", "\"b\""),
    ("coalescelist([], [1])", "[1]"),
    ("compact([\"a\", \"\"])", r#"["a"]"#),
    ("concat([1], [2])", "[1,2]"),
    ("contains([\"a\"], \"a\")", "true"),
    ("distinct([1, 2, 1])", "[1,2]"),
    ("element([1, 2, 3], 4)", "2"),
    ("flatten([[1], [2, [3]]])", "[1,2,3]"),
    ("index([\"a\", \"b\"], 1)", "\"b\""),
    ("index({a = 1, b = 2}, \"b\")", "2"),
    ("keys({b = 1, a = 2})", r#"["a","b"]"#),
    ("values({b = 1, a = 2})", "[2,1]"),
    ("length(\"abc\")", "3"),
    ("lookup({a = 1}, \"b\", 2)", "2"),
    ("merge({a = 1}, {a = 2, b = 3})", r#"{"a":2,"b":3}"#),
    ("range(1, 4)", "[1,2,3]"),
    ("setintersection([1, 2], [2, 3])", "[2]"),
    ("setunion([\"b\"], [\"a\"])", r#"["a","b"]"#),
    ("setproduct([1, 2], [\"a\"])", r#"[[1,"a"],[2,"a"]]"#),
    ("slice([1, 2, 3], 1, 2)", "[2]"),
    ("sort([\"b\", \"a\"])", r#"["a","b"]"#),
    ("zipmap([\"a\"], [1])", r#"{"a":1}"#),
    ("base64encode(\"hi\")", "\"aGk=\""),
    ("base64decode(\"aGk=\")", "\"hi\""),
    (
        "csvdecode(\"a,b\\n1,\\\"x,\\\"\\\"y\\\"\\n\")",
        r#"[{"a":"1","b":"x,\"y"}]"#,
    ),
    ("jsondecode(\"{\\\"a\\\": [1, 2.5]}\")", r#"{"a":[1,2.5]}"#),
    ("jsonencode({a = \"<\"})", r#""{\"a\":\"\\u003c\"}""#),
    ("urlencode(\"a b/ü\")", "\"a+b%2F%C3%BC\""),
    (
        "yamldecode(\"a: 1\\nb:\\n  - x\\n  - {c: [d, 'e']}\\n\")",
        r#"{"a":1,"b":["x",{"c":["d","e"]}]}"#,
    ),
    (
        "yamldecode(\"- a: 1\\n  b: 2\\n- |\\n  x\\n  y\\n\")",
        r#"[{"a":1,"b":2},"x\ny\n"]"#,
    ),
    (
        "yamldecode(yamlencode({a = [1, {b = \"c\"}], d = {}}))",
        r#"{"a":[1,{"b":"c"}],"d":{}}"#,
    ),
    (
        "formatdate(\"DD MMM YYYY hh:mm 'at' Z\", \"2018-01-02T23:12:01Z\")",
        "\"02 Jan 2018 23:12 at Z\"",
    ),
    (
        "timeadd(\"2018-01-02T23:12:01Z\", \"1h\")",
        "\"2018-01-03T00:12:01Z\"",
    ),
    (
        "timeadd(\"2018-01-02T23:12:01+02:00\", \"1m\")",
        "\"2018-01-02T23:13:01+02:00\"",
    ),
    (
        "md5(\"hello world\")",
        "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"",
    ),
    ("md5(\"\")", "\"d41d8cd98f00b204e9800998ecf8427e\""),
    (
        "sha1(\"abc\")",
        "\"a9993e364706816aba3e25717850c26c9cd0d89d\"",
    ),
    (
        "sha256(\"abc\")",
        "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"",
    ),
    ("length(sha512(\"abc\"))", "128"),
    ("length(uuidv4())", "36"),
    (
        "uuidv5(\"dns\", \"www.terraform.io\")",
        "\"a5008fae-b28c-5ba5-96cd-82b4c53552d6\"",
    ),
    ("cidrhost(\"10.12.127.0/20\", 16)", "\"10.12.112.16\""),
    ("cidrnetmask(\"172.16.0.0/12\")", "\"255.240.0.0\""),
    ("cidrsubnet(\"172.16.0.0/12\", 4, 2)", "\"172.18.0.0/16\""),
    (
        "cidrsubnets(\"10.1.0.0/16\", 4, 4, 8, 4)",
        r#"["10.1.0.0/20","10.1.16.0/20","10.1.32.0/24","10.1.48.0/20"]"#,
    ),
    (
        "cidrsubnets(\"ffff:ffff:ffff:ffff::/64\", 1, 1)",
        r#"["ffff:ffff:ffff:ffff::/65","ffff:ffff:ffff:ffff:8000::/65"]"#,
    ),
    (
        "cidrsubnets(\"255.255.255.254/31\", 1, 1)",
        r#"["255.255.255.254/32","255.255.255.255/32"]"#,
    ),
    ("can(1 / 0)", "false"),
    ("try(1 / 0, \"x\")", "\"x\""),
    ("convert(\"7\", number)", "7"),
];

#[test]
fn every_function_gives_what_it_should() {
    for (text, expected) in CALLS {
        assert_eq!(eval(text).as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn calls_that_fail_say_why_and_where() {
    for (text, part) in [
        (
            "nope(1)",
            "t:1,1-8: Call to unknown function; There is no function named \"nope\".",
        ),
        (
            "file(\"/etc/passwd\")",
            "Call to function \"file\" failed: filesystem function disabled.",
        ),
        ("upper()", "not enough arguments: number 1 is missing"),
        ("upper(\"a\", \"b\")", "too many arguments"),
        ("range(5000)", "more than 1024 values"),
        ("min(\"a\")", "a number is required"),
        ("1 / 0", "Division by zero; Cannot divide by zero."),
        ("jsondecode(\"{\")", "EOF"),
        ("indent(99999999, \"a\\nb\")", "too long"),
        ("setproduct(range(1000), range(1000))", "too many elements"),
        (
            "cidrsubnet(\"10.0.0.0/30\", 9, 0)",
            "insufficient address space",
        ),
        ("[1][3]", "Invalid index"),
        (
            "{a = 1}.b",
            "This object does not have an attribute named \"b\".",
        ),
        ("\"a\" + 1", "a number is required"),
        ("format(\"%d\", \"x\")", "a number is required"),
    ] {
        let err = eval(text).expect_err(text);
        assert!(err.contains(part), "{text}: {err}");
    }
}

#[test]
fn the_language_itself() {
    for (text, expected) in [
        ("1 + 2 * 3 - -1", "8"),
        ("7 % 4 == 3 && !(1 > 2) || false", "true"),
        ("true ? \"a\" : 1", "\"a\""),
        (
            "[for i, x in [\"a\", \"b\"] : \"${i}${x}\" if x != \"a\"]",
            r#"["1b"]"#,
        ),
        (
            "{for k, v in {a = 1, b = 2} : upper(k) => v * 2}",
            r#"{"A":2,"B":4}"#,
        ),
        (
            "{for x in [\"a\", \"b\", \"a\"] : x => 1...}",
            r#"{"a":[1,1],"b":[1]}"#,
        ),
        ("[{a = 1}, {a = 2}].*.a", "[1,2]"),
        ("[{a = [1]}, {a = [2]}][*].a[0]", "[1,2]"),
        ("{\"a b\" = 1}[\"a b\"]", "1"),
        ("\"x${1 + 1}y\"", "\"x2y\""),
        ("\"${[1, 2]}\"", "[1,2]"),
        ("\"%{ if true }yes%{ else }no%{ endif }\"", "\"yes\""),
        ("\"%{ for x in [1, 2] }<${x}>%{ endfor }\"", "\"<1><2>\""),
        ("\"a  ${~ 1 ~}  b\"", "\"a1b\""),
        ("\"$${a} %%{b}\"", "\"${a} %{b}\""),
        (
            "\"${attr.kernel.name} ${env[\"HOME\"]} ${NOMAD_TASK_DIR}\"",
            r#""${attr.kernel.name} ${env[\"HOME\"]} ${NOMAD_TASK_DIR}""#,
        ),
        ("node.unique.id", "\"${node.unique.id}\""),
        ("2.5 * 2", "5"),
        ("18446744073709551615", "18446744073709551615"),
        ("null == null", "true"),
    ] {
        assert_eq!(eval(text).as_deref(), Ok(expected), "{text}");
    }
}
