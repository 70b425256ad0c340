//! Tests of correlation rules that cannot be used.

use super::{Tested, correlation, engine};
use crate::sigma::correlation::resolve;

const COUNT: &str = "type: event_count\nrules: [a]\ntimespan: 1m\n";

/// End and begin of a section, and its mistake.
const MISTAKES: &[([&str; 2], usize, &str)] = &[
    (["", COUNT], 4, "has no condition"),
    (
        ["condition:\n    lt: 3\n", COUNT],
        8,
        "holds without any event",
    ),
    (
        ["condition:\n    neq: 3\n", COUNT],
        8,
        "holds without any event",
    ),
    (
        ["condition:\n    gte: 3\n    foo: 1\n", COUNT],
        10,
        "unknown field",
    ),
    (
        ["condition:\n    gte: 100000\n", COUNT],
        8,
        "counts more than 10000",
    ),
    (["condition:\n    gte: .inf\n", COUNT], 8, "not finite"),
    (
        ["condition:\n    gte: 3\n    field: User\n", COUNT],
        8,
        "have a field",
    ),
    (
        [
            "type: value_count\nrules: [a]\ntimespan: 1m\ncondition:\n    gte: 3\n",
            "",
        ],
        8,
        "has no field",
    ),
    (
        ["type: value_percentile\nrules: [a]\ntimespan: 1m\n", ""],
        5,
        "are not supported",
    ),
    (
        ["type: often\nrules: [a]\ntimespan: 1m\n", ""],
        5,
        "is not a type",
    ),
    (
        ["type: temporal\nrules: [a, d]\ntimespan: 1m\n", ""],
        6,
        "no loaded rule has the id or name `d`",
    ),
    (
        ["type: temporal\nrules: []\ntimespan: 1m\n", ""],
        6,
        "refers to 0 rules",
    ),
    (["type: temporal\nrules: [1]\ntimespan: 1m\n", ""], 5, ""),
    (
        ["type: temporal\nrules: [a]\ntimespan: 10x\n", ""],
        7,
        "is not a timespan",
    ),
    (
        [
            "type: temporal\nrules: [a]\ntimespan: 99999999999999999999d\n",
            "",
        ],
        7,
        "is not a timespan",
    ),
    (
        ["type: temporal\nrules: [a]\ntimespan: 500d\n", ""],
        7,
        "is not between",
    ),
    (["type: temporal\nrules: [a]\n", ""], 5, "timespan"),
    (
        [
            "type: temporal\nrules: [a]\ntimespan: 1m\ngroup-by: [a,b,c,d,e,f,g,h,i]\n",
            "",
        ],
        8,
        "has 9 fields",
    ),
    (
        [
            "type: temporal\nrules: [a]\ntimespan: 1m\naliases:\n    x:\n        q: User\n",
            "",
        ],
        9,
        "names `q`",
    ),
    (
        ["type: temporal\nrules: [corr]\ntimespan: 1m\n", ""],
        6,
        "refers to this one",
    ),
    (
        [
            "type: temporal\nrules: [a]\ntimespan: 1m\ncondition: a and b\n",
            "",
        ],
        8,
        "",
    ),
    (
        [
            "type: temporal\nrules:\n- b\n- a\n- id-b\ntimespan: 1m\n",
            "",
        ],
        9,
        "the rule `id-b` is listed twice",
    ),
    (
        [
            "condition:\n    gte: 3\n",
            "type: temporal\nrules: [a, b]\ntimespan: 1m\n",
        ],
        8,
        "never holds",
    ),
    (
        ["condition:\n    gt: 5\n    lt: 4\n", COUNT],
        8,
        "never holds",
    ),
    (
        ["condition:\n    gt: 5\n    lt: 6\n", COUNT],
        8,
        "never holds",
    ),
    (["condition:\n    eq: 2.5\n", COUNT], 8, "never holds"),
    (
        [
            "condition:\n    field: LogonId\n    gt: 5\n    lte: 5\n",
            "type: value_sum\nrules: [a]\ntimespan: 1m\n",
        ],
        8,
        "never holds",
    ),
];

#[test]
fn mistakes_have_line_reason_and_advice() {
    for (section, line, reason) in MISTAKES {
        let [end, begin] = section;
        let section = format!("{begin}{end}");
        let (tested, mistakes) = Tested::with_mistakes(&[&section]);
        let mistake = mistakes[0].as_ref().expect(&section);
        assert!(mistake.reason.contains(reason), "{section}: {mistake}");
        assert_eq!(mistake.line, *line, "{section}: {mistake}");
        assert!(tested.correlations.rules().is_empty());
    }
    let circle = "type: temporal\nrules: [corr1]\ntimespan: 1m\n";
    let (_, mistakes) = Tested::with_mistakes(&[
        circle,
        "type: temporal\nrules: [corr]\ntimespan: 1m\n",
        circle,
    ]);
    assert_eq!(mistakes.iter().flatten().count(), 3);
    let mut engine = engine();
    let text = correlation(super::COUNT);
    let (_, mistakes) = resolve(
        &mut engine,
        &[&text, &text, &text.replace("id: corr", "id: id-a")],
    );
    let told = mistakes
        .iter()
        .flatten()
        .map(|mistake| mistake.reason.as_str());
    let expected = [
        "another rule has the id `corr`",
        "another rule has the id `id-a`",
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
