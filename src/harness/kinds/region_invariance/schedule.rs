//! How each execution case cuts the rows of a sequence into steps.

use super::subject::Subject;
use crate::harness::inventory::ExecutionCase;

/// One step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// This many rows at once.
    Feed(usize),
    /// This many rows of other content, taken back again.
    Reject(usize),
    /// One row, in the middle of other sequences' rows.
    Among,
}

/// Rows of one chunk of `chunked_prefill`.
const CHUNK: usize = 64;
/// The chunks of `split_prefill`, over and over: none is aligned with blocks or groups.
const SPLIT: [usize; 5] = [37, 91, 1, 130, 2];
/// Rows fed one by one after a prompt.
const STEPS: usize = 5;

/// The moves of a case over the subject's rows.
pub(super) fn of(case: ExecutionCase, subject: &Subject) -> Vec<Move> {
    let rows = subject.rows;
    let tail = STEPS.min(rows);
    let prompt = rows - tail;
    let feed_prompt = |rest: Vec<Move>| -> Vec<Move> {
        let first = (prompt > 0).then_some(Move::Feed(prompt));
        first.into_iter().chain(rest).collect()
    };
    match case {
        ExecutionCase::RecurrentPrefill => vec![Move::Feed(1); rows],
        ExecutionCase::ChunkedPrefill => cut(rows, [CHUNK].into_iter().cycle()),
        ExecutionCase::SplitPrefill => cut(rows, SPLIT.into_iter().cycle()),
        ExecutionCase::Tail1 if rows > 1 => vec![Move::Feed(rows - 1), Move::Feed(1)],
        ExecutionCase::Tail1 => vec![Move::Feed(1)],
        ExecutionCase::Decode => feed_prompt(vec![Move::Feed(1); tail]),
        ExecutionCase::VerifyRows => feed_prompt(vec![Move::Reject(tail), Move::Feed(tail)]),
        ExecutionCase::BatchedDecode => feed_prompt(vec![Move::Among; tail]),
    }
}

fn cut(rows: usize, sizes: impl Iterator<Item = usize>) -> Vec<Move> {
    let mut left = rows;
    let mut moves = Vec::new();
    for size in sizes {
        if left == 0 {
            break;
        }
        let size = size.min(left);
        moves.push(Move::Feed(size));
        left -= size;
    }
    moves
}
