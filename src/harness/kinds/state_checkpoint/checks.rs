//! The checks. Each gives the number of comparisons, or what differed.

use crate::engine::{Batch, Engine, RowWant, Sequence, SequenceError, Want};

/// A check over an engine.
pub(in crate::harness::kinds) type Check = fn(&Stage<'_>) -> Result<u64, String>;

/// Every check by name.
pub(in crate::harness::kinds) const CHECKS: &[(&str, Check)] = &[
    ("truncate_is_exact", truncate_is_exact),
    ("truncate_past_history_changes_nothing", truncate_past_history),
    ("restore_equals_a_straight_run", restore_is_exact),
    ("checkpoints_do_not_nest", no_nesting),
    ("foreign_and_stale_checkpoints_are_refused", foreign_and_stale),
    ("forks_are_independent", forks),
    ("refused_entries_change_nothing", refusals),
    ("reset_is_a_new_sequence", reset),
];

/// What the checks run on.
pub(in crate::harness::kinds) struct Stage<'a> {
    pub(in crate::harness::kinds) engine: &'a Engine,
}

impl Stage<'_> {
    fn sequence(&self) -> Result<Sequence, String> {
        self.engine.sequence().map_err(text)
    }

    /// Token content: streams that share nothing.
    fn tokens(&self, stream: usize, from: usize, to: usize) -> Vec<u32> {
        let vocab = self.engine.descriptor().vocab;
        (from..to).map(|p| (((p * 31 + stream * 17) * 7 + 3) % vocab) as u32).collect()
    }

    fn feed(&self, sequence: &mut Sequence, tokens: &[u32]) -> Result<Vec<f32>, String> {
        let output = self.engine.prefill(sequence, tokens, RowWant::Logits).map_err(text)?;
        output.into_logits().ok_or_else(|| "no logits".to_owned())
    }

    /// A sequence that consumed `prefix` in one piece.
    fn straight(&self, prefix: &[u32]) -> Result<Sequence, String> {
        let mut sequence = self.sequence()?;
        if !prefix.is_empty() {
            self.feed(&mut sequence, prefix)?;
        }
        Ok(sequence)
    }

    /// Compares state, and the logits after three more tokens, bit for bit; both advance.
    fn same(&self, what: &str, a: &mut Sequence, b: &mut Sequence) -> Result<u64, String> {
        if a.live().map_err(text)? != b.live().map_err(text)? {
            return Err(format!("{what}: the states differ"));
        }
        for token in self.tokens(3, 0, 3) {
            let (x, y) = (self.feed(a, &[token])?, self.feed(b, &[token])?);
            if x.iter().zip(&y).any(|(x, y)| x.to_bits() != y.to_bits() || !x.is_finite()) {
                return Err(format!("{what}: the logits of later tokens differ"));
            }
        }
        Ok(4)
    }
}

/// Lengths around group, window and block boundaries, and how much is taken back.
const TRUNCATIONS: [(usize, usize); 14] = [
    (1, 1),
    (2, 1),
    (5, 3),
    (63, 62),
    (64, 1),
    (64, 63),
    (65, 1),
    (65, 2),
    (100, 40),
    (128, 1),
    (130, 3),
    (130, 60),
    (257, 2),
    (520, 9),
];

fn truncate_is_exact(stage: &Stage<'_>) -> Result<u64, String> {
    let mut compared = 0;
    for (len, back) in TRUNCATIONS {
        let what = format!("{len} tokens less {back}");
        let all = stage.tokens(0, 0, len);
        let mut sequence = stage.straight(&all)?;
        sequence.truncate(len - back).map_err(|e| format!("{what}: {e}"))?;
        let mut straight = stage.straight(&all[..len - back])?;
        compared += stage.same(&what, &mut sequence, &mut straight)?;
        // Once more over the same ground with other content.
        let target = len - back;
        sequence.truncate(target).map_err(|e| format!("{what}, again: {e}"))?;
        let other = stage.tokens(1, target, target + back + 70);
        stage.feed(&mut sequence, &other)?;
        let mut straight = stage.straight(&[&all[..target], &other[..]].concat())?;
        compared += stage.same(&format!("{what}, other content"), &mut sequence, &mut straight)?;
    }
    Ok(compared)
}

fn truncate_past_history(stage: &Stage<'_>) -> Result<u64, String> {
    let all = stage.tokens(0, 0, 330);
    let mut sequence = stage.straight(&all)?;
    let held_bytes = sequence.size_bytes();
    let mut compared = 0;
    for target in [400, 3] {
        match sequence.truncate(target) {
            Err(SequenceError::Truncate { target_tokens, .. }) if target_tokens == target => {}
            Ok(()) if target == 3 && stage.engine.plan().gdn_slots.is_empty() => {
                // Attention alone has no such limit: exact all the way, and the pages behind are
                // given back.
                let left_bytes = sequence.size_bytes();
                if left_bytes >= held_bytes {
                    return Err(format!(
                        "3 tokens of 330 are charged {left_bytes} bytes, 330 were charged \
                         {held_bytes}"
                    ));
                }
                let mut straight = stage.straight(&all[..3])?;
                return Ok(compared + stage.same("to 3", &mut sequence, &mut straight)?);
            }
            other => return Err(format!("truncating 330 tokens to {target} gave {other:?}")),
        }
        let mut straight = stage.straight(&all)?;
        let mut copy = sequence.fork().map_err(text)?;
        compared += stage.same("after the refusal", &mut copy, &mut straight)?;
    }
    Ok(compared)
}

fn restore_is_exact(stage: &Stage<'_>) -> Result<u64, String> {
    let mut compared = 0;
    for (before, after) in [(1, 300), (63, 2), (64, 200), (100, 29), (300, 1)] {
        let prefix = stage.tokens(0, 0, before);
        let mut sequence = stage.straight(&prefix)?;
        let checkpoint = sequence.checkpoint().map_err(text)?;
        for stream in [1, 2] {
            stage.feed(&mut sequence, &stage.tokens(stream, before, before + after))?;
            sequence.restore(&checkpoint).map_err(text)?;
        }
        let mut straight = stage.straight(&prefix)?;
        let what = format!("checkpoint at {before}, {after} tokens later");
        compared += stage.same(&what, &mut sequence, &mut straight)?;
        checkpoint.release();
        sequence.checkpoint().map_err(|e| format!("after release: {e}"))?.release();
    }
    Ok(compared)
}

fn no_nesting(stage: &Stage<'_>) -> Result<u64, String> {
    let mut sequence = stage.straight(&stage.tokens(0, 0, 10))?;
    let checkpoint = sequence.checkpoint().map_err(text)?;
    match sequence.checkpoint() {
        Err(SequenceError::Checkpoint { reason }) if reason.contains("another checkpoint") => {}
        other => return Err(format!("a second checkpoint gave {:?}", other.map(|_| ()))),
    }
    drop(checkpoint);
    sequence.checkpoint().map_err(|e| format!("after the first went: {e}"))?.release();
    let mut straight = stage.straight(&stage.tokens(0, 0, 10))?;
    stage.same("after the refusal", &mut sequence, &mut straight)
}

fn foreign_and_stale(stage: &Stage<'_>) -> Result<u64, String> {
    let mut a = stage.straight(&stage.tokens(0, 0, 70))?;
    let mut b = stage.straight(&stage.tokens(1, 0, 70))?;
    let of_a = a.checkpoint().map_err(text)?;
    let refused = |result: Result<(), SequenceError>, part: &str| match result {
        Err(SequenceError::Checkpoint { reason }) if reason.contains(part) => Ok(()),
        other => Err(format!("expected a refusal that says `{part}`, got {other:?}")),
    };
    refused(b.restore(&of_a), "another sequence")?;
    let mut fork = a.fork().map_err(text)?;
    refused(fork.restore(&of_a), "another sequence")?;
    a.reset();
    refused(a.restore(&of_a), "reset")?;
    let mut straight = stage.straight(&stage.tokens(1, 0, 70))?;
    let mut empty = stage.sequence()?;
    let compared = stage.same("after the refusal", &mut b, &mut straight)?;
    Ok(compared + stage.same("after reset and refusal", &mut a, &mut empty)?)
}

fn forks(stage: &Stage<'_>) -> Result<u64, String> {
    let mut compared = 0;
    for len in [1, 63, 64, 100, 256, 300] {
        let prefix = stage.tokens(0, 0, len);
        let mut parent = stage.straight(&prefix)?;
        let mut child = parent.fork().map_err(text)?;
        let (left, right) = (stage.tokens(1, len, len + 90), stage.tokens(2, len, len + 70));
        stage.feed(&mut parent, &left)?;
        stage.feed(&mut child, &right)?;
        let mut straight = stage.straight(&[&prefix[..], &left].concat())?;
        compared +=
            stage.same(&format!("parent of a fork at {len}"), &mut parent, &mut straight)?;
        let mut straight = stage.straight(&[&prefix[..], &right].concat())?;
        compared += stage.same(&format!("fork at {len}"), &mut child, &mut straight)?;
    }
    Ok(compared)
}

fn refusals(stage: &Stage<'_>) -> Result<u64, String> {
    let vocab = stage.engine.descriptor().vocab;
    let prefix = stage.tokens(0, 0, 70);
    let (mut good, mut empty, mut outside, mut miscounted) = (
        stage.straight(&prefix)?,
        stage.straight(&prefix)?,
        stage.straight(&prefix)?,
        stage.straight(&prefix)?,
    );
    let mut batch = Batch::new();
    let far = [1, vocab as u32];
    batch.push(&mut empty, &[], Want::Nothing);
    batch.push(&mut outside, &far, Want::Nothing);
    batch.push(&mut good, &[9], Want::Last(RowWant::Greedy));
    batch.push(&mut miscounted, &[1, 2], Want::Rows(vec![RowWant::Greedy]));
    let results = stage.engine.forward(&mut batch);
    let expected = [
        Err(SequenceError::NoTokens),
        Err(SequenceError::TokenOutOfRange { id: vocab as u32, vocab }),
        Ok(()),
        Err(SequenceError::WantCount { wants: 1, rows: 2 }),
    ];
    for (i, (found, expected)) in results.into_iter().zip(expected).enumerate() {
        let found = found.map(|_| ());
        if found != expected {
            return Err(format!("entry {i}: expected {expected:?}, got {found:?}"));
        }
    }
    let mut compared = 0;
    for (what, sequence) in
        [("no tokens", &mut empty), ("id", &mut outside), ("wants", &mut miscounted)]
    {
        let mut straight = stage.straight(&prefix)?;
        compared += stage.same(what, sequence, &mut straight)?;
    }
    let mut straight = stage.straight(&[&prefix[..], &[9]].concat())?;
    Ok(compared + stage.same("the admitted entry", &mut good, &mut straight)?)
}

fn reset(stage: &Stage<'_>) -> Result<u64, String> {
    let mut sequence = stage.straight(&stage.tokens(0, 0, 200))?;
    sequence.reset();
    if !sequence.is_empty() {
        return Err("a reset sequence is not empty".to_owned());
    }
    let mut fresh = stage.sequence()?;
    stage.same("reset", &mut sequence, &mut fresh)
}

fn text(error: SequenceError) -> String {
    error.to_string()
}
