//! Descriptor files that must be refused, each by one change to a good one, with the message.

use assay::descriptor::Descriptor;
use std::path::Path;

const GOOD: &str = include_str!("../descriptors/tiny-qwen35.json");

fn message(text: &str) -> String {
    match Descriptor::from_json("d.json", text.as_bytes()) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_change_is_refused_at_its_key() {
    assert_eq!(message(GOOD), "accepted");
    let cases = [
        (
            "\"schema_version\": 2",
            "\"schema_version\": 3",
            "`schema_version`: expected 2, found 3 (help: write it again with `assay model descriptor`)",
        ),
        ("  \"hidden\": 64,\n", "", "`hidden`: expected a value, found it missing"),
        (
            "\"hidden\": 64",
            "\"hiden\": 64",
            "`hidden`: expected a value, found it missing (help: `hiden` is given; is it meant?)",
        ),
        ("\"hidden\": 64", "\"hidden\": 64, \"colour\": 1", "`colour`: unknown key"),
        ("\"hidden\": 64", "\"hidden\": 64.0", "`hidden`: expected a positive integer, found 64.0"),
        (
            "\"hidden\": 64",
            "\"hidden\": 64, \"hidden\": 64",
            "key `hidden` is given twice, first in line 4",
        ),
        (
            "\"hidden\": 64",
            "\"hidden\": 32",
            "`roles.embed.shape`: expected hidden = 32 for axis 1, found [512, 64]",
        ),
        ("\"hidden\": 64", "\"hidden\": 4000000", "`hidden`: expected 1…1048576, found 4000000"),
        (
            "\"norm_style\": \"one_plus\"",
            "\"norm_style\": \"oneplus\"",
            "`norm_style`: expected one of plain, one_plus, found \"oneplus\" (help: is \"one_plus\" meant?)",
        ),
        (
            "\"norm_epsilon\": 1e-6",
            "\"norm_epsilon\": -1e-6",
            "`norm_epsilon`: expected a positive number, found -1e-6",
        ),
        (
            "\"norm_epsilon\": 1e-6",
            "\"norm_epsilon\": 1e-60",
            "`norm_epsilon`: expected a number that FP32 holds, 1.2e-38 to 3.4e38, found 1e-60",
        ),
        (
            "\"rope_theta\": 10000000.0",
            "\"rope_theta\": 1e-7",
            "`rope_theta`: expected a number from 1 to 3.4e38, found 1e-7",
        ),
        (
            "{ \"kind\": \"none\" }",
            "{ \"kind\": \"linear\", \"factor\": 0.5 }",
            "`rope_scaling`: expected a `factor` from 1 to 3.4e38, found 0.5",
        ),
        (
            "\"kv_heads\": 2",
            "\"kv_heads\": 4",
            "`kv_heads`: expected a divisor of query_heads (6), found 4",
        ),
        (
            "\"kv_heads\": 2",
            "\"kv_heads\": null",
            "`kv_heads`: expected a value, as `query_heads` has one, found null",
        ),
        (
            "\"rotary_dim\": 16",
            "\"rotary_dim\": 15",
            "`rotary_dim`: expected an even number up to head_dim (64), found 15",
        ),
        (
            "{ \"kind\": \"none\" }",
            "{ \"kind\": \"longrope\" }",
            "`rope_scaling.kind`: expected \"none\", \"linear\", \"llama3\" or \"yarn\", found \"longrope\"",
        ),
        (
            "\"gdn_value_heads\": 6",
            "\"gdn_value_heads\": 5",
            "`gdn_value_heads`: expected a multiple of gdn_key_heads (2), found 5",
        ),
        (
            "\"intermediate\": 128",
            "\"intermediate\": null",
            "`intermediate`: expected, because there is a dense feed-forward",
        ),
        (
            "\"end_tokens\": [506, 509]",
            "\"end_tokens\": [509, 506]",
            "`end_tokens`: expected ascending ids without repetition",
        ),
        (
            "\"end_tokens\": [506, 509]",
            "\"end_tokens\": [506, 512]",
            "`end_tokens`: expected ids below 512, found 512",
        ),
        (
            "\"name\": \"final_norm\"",
            "\"name\": \"input_norm\"",
            "`roles`: expected embed, lm_head, final_norm, input_norm",
        ),
        ("\"name\": \"final_norm\"", "\"name\": \"finalnorm\"", "`roles[2].name`: expected one of"),
        (
            "\"layers\": [3, 7]",
            "\"layers\": [3]",
            "`roles.attn_q.layers`: expected layers [3, 7], found layers [3]",
        ),
        (
            "query_heads*2*head_dim",
            "query_heads*head_dim*2",
            "`roles.attn_q.shape_terms`: expected",
        ),
        (
            "\"shard\": \"out_dim\"",
            "\"shard\": \"sideways\"",
            "`roles[0].shard`: expected one of none, out_heads, out_dim, in_dim, out_experts",
        ),
        (
            "layers.{layer}.input_layernorm",
            "layers.0.input_layernorm",
            "`roles.input_norm.views`: expected a tensor name with {layer} once and no other braces",
        ),
        (
            "\"lm_head.weight\", \"rows\": \"all\"",
            "\"lm_head.weight\", \"rows\": \"some\"",
            "`roles[1].views[0].rows`: expected \"all\" or an object of blocks, found \"some\"",
        ),
        (
            "\"lm_head.weight\", \"rows\": \"all\"",
            "\"lm_head.weight\", \"rows\": { \"start\": 0, \"block\": 8, \"stride\": 4, \"count\": 64 }",
            "`roles.lm_head.views`: expected blocks that do not overlap, found 8 rows every 4",
        ),
        (
            "\"lm_head.weight\", \"rows\": \"all\"",
            "\"lm_head.weight\", \"rows\": { \"start\": 0, \"block\": 8, \"stride\": 8, \"count\": 63 }",
            "`roles.lm_head.views`: expected 512 rows in all, found 504",
        ),
        (
            "\"tied_to\": null",
            "\"tied_to\": \"embed\"",
            "`roles.embed.views`: expected none, because the role is tied",
        ),
    ];
    for (good, bad, expected) in cases {
        assert!(GOOD.contains(good), "{good}");
        let found = message(&GOOD.replacen(good, bad, 1));
        assert!(found.contains(expected), "{bad}\n  expected {expected}\n  found    {found}");
        assert!(found.starts_with("d.json:"), "{found} has no place");
    }
}

/// Every row pattern survives the file, and blocks that cover a weight are accepted.
#[test]
fn blocks_of_rows_read_and_write() {
    let all = "{ \"tensor\": \"lm_head.weight\", \"rows\": \"all\" }";
    let halves = "{ \"tensor\": \"a\", \"rows\": { \"start\": 0, \"block\": 64, \"stride\": 128, \"count\": 4 } },\n        \
                  { \"tensor\": \"b\", \"rows\": { \"start\": 64, \"block\": 64, \"stride\": 128, \"count\": 4 } }";
    assert!(GOOD.contains(all));
    let text = GOOD.replacen(all, halves, 1);
    let descriptor = Descriptor::from_json("d.json", text.as_bytes()).unwrap();
    let written = descriptor.to_json();
    assert_eq!(Descriptor::from_json("d.json", written.as_bytes()).unwrap(), descriptor);
    assert!(Descriptor::read(Path::new("no/such/file")).is_err());
}

/// A message quotes the beginning of a key of any length.
#[test]
fn a_key_of_any_length_is_a_short_message() {
    let key = "é".repeat(100_000);
    let found = message(&GOOD.replace("\"hidden\": 64", &format!("\"hidden\": 64, \"{key}\": 1")));
    let begins = format!("`{}…`: unknown key", "é".repeat(100));
    assert!(found.contains(&begins) && found.len() < 400, "{} bytes", found.len());
}
