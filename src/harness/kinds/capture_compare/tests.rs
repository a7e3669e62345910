//! The shipped table holds, and a wrong one does not.

use crate::harness::testing::problems;

const FILE: &str = include_str!("../../../../gates/capture-compare.yaml");

#[test]
fn the_shipped_table_holds() {
    assert_eq!(problems(FILE), [""; 0]);
}

#[test]
fn a_comparison_that_ends_otherwise_fails() {
    let defects = [
        ("{ name: same_again, expect: pass }", "{ name: same_again, expect: fail }"),
        (
            "{ name: one_bit, edit: one_bit, expect: fail,",
            "{ name: one_bit, edit: one_bit, expect: pass,",
        ),
        ("because: \"numerical_policy differs in", "because: \"semantic differs in"),
    ];
    let text = defects.iter().fold(FILE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    let found = problems(&text);
    assert_eq!(found.len(), defects.len(), "{found:#?}");
    assert!(found[0].starts_with("same_again: expected exit code 1, found 0: pass"), "{found:#?}");
}
