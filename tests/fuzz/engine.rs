//! Parsers of files that people download: checkpoints, configs, templates, token streams.

use crate::fuzzer::{Target, kind_of_message};
use assay::descriptor::{ConfigFiles, Descriptor};
use assay::generation::chat::{ChatTemplate, Conversation};
use assay::generation::{ControlTokens, StopStrings, TextTokenizer};
use assay::weights::Checkpoint;
use std::path::Path;
use std::sync::OnceLock;

/// Pieces of JSON.
pub(crate) const JSON: &[&str] = &[
    "null",
    "true",
    "false",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"\"",
    "{}",
    "[]",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude42",
    "é",
    "NaN",
];

pub(crate) static CONFIG: Target = Target {
    name: "config",
    folders: &["tests/corpus/config"],
    dictionary: &[
        "null",
        "true",
        "{}",
        "[]",
        "\"\"",
        "\"llama\"",
        "\"qwen3\"",
        "\"qwen3_5\"",
        "\"model_type\"",
        "\"head_dim\"",
        "\"rope_scaling\"",
        "\"rope_parameters\"",
        "\"llama3\"",
        "\"text_config\"",
        "\"tie_word_embeddings\"",
        "\"layer_types\"",
        "\"full_attention\"",
        "\"eos_token_id\"",
        "\\ud800",
        "1e999",
        ",",
        "}",
        "]",
    ],
    run: |bytes| {
        let files =
            ConfigFiles { config: ("config.json", bytes), generation_config: None, tensors: None };
        match Descriptor::derive(&files) {
            Err(refusal) => kind_of_message(&refusal.to_string()),
            Ok(descriptor) => {
                descriptor.validate().expect("an accepted config is consistent");
                let text = descriptor.to_json();
                let back = Descriptor::from_json("d", text.as_bytes()).expect("canonical");
                assert_eq!(back, descriptor);
                format!("accepted {}", descriptor.family)
            }
        }
    },
};

pub(crate) static DESCRIPTOR: Target = Target {
    name: "descriptor",
    folders: &["tests/corpus/descriptor"],
    dictionary: &[
        "null",
        "true",
        "{}",
        "[]",
        "\"gdn\"",
        "\"full_attention\"",
        "\"dense\"",
        "\"all\"",
        "{ \"start\": 0, \"block\": 1, \"stride\": 1, \"count\": 1 }",
        "\"hidden\"",
        "\"vocab\"",
        "*",
        "+",
        "{layer}",
        "\"embed\"",
        "\"half_split\"",
        "1048576",
        ",",
        "}",
        "]",
    ],
    run: |bytes| match Descriptor::from_json("descriptor.json", bytes) {
        Err(error) => kind_of_message(&error.to_string()),
        Ok(descriptor) => {
            descriptor.validate().expect("an accepted descriptor is consistent");
            // Sizes and identities of anything accepted can be computed.
            let _ = (descriptor.semantic(), descriptor.storage(), descriptor.parameters());
            let _ = descriptor.gdn_state_bytes_per_sequence();
            let text = descriptor.to_json();
            assert_eq!(
                Descriptor::from_json("d", text.as_bytes()).expect("canonical").to_json(),
                text
            );
            "accepted".to_owned()
        }
    },
};

pub(crate) static SAFETENSORS: Target = Target {
    name: "checkpoint",
    folders: &["tests/corpus/checkpoint"],
    dictionary: &[
        "\"dtype\"",
        "\"shape\"",
        "\"data_offsets\"",
        "\"BF16\"",
        "\"F32\"",
        "__metadata__",
        "[0,0]",
        "[]",
        "{}",
        "\\u0061",
        "null",
        "\0\0\0\0\0\0\0\u{7f}",
        "\u{8}\0\0\0\0\0\0\0",
    ],
    run: |bytes| {
        thread_local! {
            static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
        }
        FOLDER.with(|folder| {
            let path = folder.path().join("model.safetensors");
            std::fs::write(&path, bytes).expect("a temporary file");
            match Checkpoint::open(&path) {
                Err(error) => format!("{:?}", error.rule),
                Ok(checkpoint) => {
                    for (name, entry) in checkpoint.tensors() {
                        let found = checkpoint.bytes(name).expect("listed").len();
                        assert_eq!(found, entry.size_bytes, "{name}");
                    }
                    // The reference implementation agrees that this is a file of its format.
                    safetensors::SafeTensors::deserialize(bytes).expect("accepted elsewhere too");
                    "accepted".to_owned()
                }
            }
        })
    },
};

pub(crate) static TEMPLATE: Target = Target {
    name: "template",
    folders: &["tests/corpus/template"],
    dictionary: &[
        "{{",
        "}}",
        "{%",
        "%}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "if ",
        "else",
        "endif",
        "for m in messages",
        "endfor",
        "set ",
        "macro f(x)",
        "endmacro",
        "namespace()",
        "messages",
        "[0]",
        "[::-1]",
        ".content",
        ".role",
        "|trim",
        "|tojson",
        "|tojson(indent=4)",
        ".split('<')",
        " is string",
        " not ",
        " in ",
        "'<|im_end|>'",
        "range(9)",
        "raise_exception('x')",
        "strftime_now('%Y')",
        "generation",
        "endgeneration",
        "loop.index0",
        "loop.last",
        " ~ ",
        "**9",
        "* 1000",
        "break",
        "f(f(1))",
        "caller()",
        "self",
        "'%s' | format(1)",
        "dict(a=1)",
        "bos_token",
    ],
    run: |bytes| {
        let Ok(source) = std::str::from_utf8(bytes) else { return "no text".to_owned() };
        let kind = |e: assay::generation::chat::ChatError| kind_of_message(&e.to_string());
        let special = vec![("bos_token".to_owned(), "<s>".to_owned())];
        let template = match ChatTemplate::compile("t".into(), source.to_owned(), special) {
            Ok(template) => template,
            Err(error) => return kind(error),
        };
        let messages = Conversation::parse(
            Path::new("m"),
            br#"[{"role": "system", "content": "S"}, {"role": "user", "content": "a <|im_end|> b <"}]"#,
        )
        .expect("a conversation");
        let control = ["<|im_start|>", "<|im_end|>"];
        match template.render(&messages, true, control) {
            Err(error) => kind(error),
            // The mark never stays in the text.
            Ok(rendered) => {
                assert!(!rendered.text.contains(|c| ('\u{10ff00}'..='\u{10fffd}').contains(&c)));
                format!("rendered {}", rendered.text.len().min(40))
            }
        }
    },
};

pub(crate) static CONVERSATION: Target = Target {
    name: "conversation",
    folders: &["tests/corpus/conversation"],
    dictionary: JSON,
    run: |bytes| match Conversation::parse(Path::new("m.json"), bytes) {
        Err(error) => kind_of_message(&error.to_string()),
        Ok(conversation) => {
            static CHATML: OnceLock<ChatTemplate> = OnceLock::new();
            let template = CHATML.get_or_init(|| {
                let source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
                              <|im_end|>{% endfor %}{{ tools | tojson }}";
                ChatTemplate::compile("t".into(), source.into(), vec![]).expect("a template")
            });
            let tokenizer = tokenizer();
            match template.render(&conversation, true, tokenizer.control_tokens()) {
                Err(error) => kind_of_message(&error.to_string()),
                Ok(rendered) => {
                    // Two control tokens a message: those that the template wrote, no other.
                    let ids = tokenizer.encode_chat(&rendered).expect("ids");
                    let found = ids.iter().filter(|id| tokenizer.is_control(**id)).count();
                    assert!(found.is_multiple_of(2), "{found} control tokens");
                    let spelt = rendered.spelt_by_messages(tokenizer.control_tokens()).is_some();
                    format!("rendered, spelt {spelt}, {}", (found / 2).min(9))
                }
            }
        }
    },
};

fn tokenizer() -> &'static TextTokenizer {
    static TOKENIZER: OnceLock<TextTokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        TextTokenizer::open(&path.join("tests/fixtures/tokenizer/tokenizer.json")).expect("opens")
    })
}

/// Ids as pairs of bytes: the pieces of a stream are the text of the whole, however stop strings
/// watch them; and the text, encoded as text, has no control token.
pub(crate) static STREAM: Target = Target {
    name: "token-stream",
    folders: &["tests/corpus/token-stream"],
    dictionary: &["\u{1}\u{fd}", "\u{1}\u{fc}", "\0\u{1f}", "\u{1}\0"],
    run: |bytes| {
        let tokenizer = tokenizer();
        let ids: Vec<u32> = bytes
            .chunks(2)
            .map(|pair| pair.iter().fold(0u32, |id, b| id << 8 | u32::from(*b)) % 600)
            .collect();
        let mut stream = tokenizer.stream(true);
        let mut text = String::new();
        for id in &ids {
            match stream.push(*id) {
                Ok(piece) => text += &piece,
                Err(error) => {
                    assert!(*id as usize >= tokenizer.ids(), "{error}");
                    return "unknown id".to_owned();
                }
            }
        }
        text += &stream.finish();
        assert_eq!(text, tokenizer.decode(&ids, true).expect("known ids"));
        let literal = tokenizer.encode(&text, ControlTokens::AsText).expect("encodes");
        assert!(!literal.iter().any(|id| tokenizer.is_control(*id)));
        let stops = ["\u{fffd}<".to_owned(), "<|im_".to_owned(), "ab".to_owned()];
        let mut watch = StopStrings::new(&stops);
        let mut passed = String::new();
        let mut stopped = None;
        for c in text.chars() {
            let step = watch.push(c.encode_utf8(&mut [0; 4]));
            passed += &step.text;
            if step.stopped.is_some() {
                stopped = step.stopped;
                break;
            }
        }
        let first = stops.iter().filter_map(|s| text.find(s.as_str())).min();
        match first {
            Some(at) => assert_eq!((passed.as_str(), stopped.is_some()), (&text[..at], true)),
            None => assert_eq!(passed + &watch.finish(), text),
        }
        let broken = text.contains('\u{fffd}');
        format!("broken {broken}, stopped {stopped:?}, {}", (ids.len() / 8).min(9))
    },
};
