//! What the next process launch measures.

use super::{Line, Plan, is_dropped};

/// A launch that takes longer than this to start is spread thinner: each look then doubles the
/// quads per launch instead of adding launches in proportion.
const SLOW_START_MS: f64 = 5_000.0;

/// The next launch: its number and the quads to keep of every series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextLaunch {
    pub(super) launch: u32,
    /// In the order of [`Plan::series`].
    pub(super) quads: Vec<usize>,
}

/// Quads still wanted for the look that comes next, spread over launches; `None` after the last
/// look.
pub(super) fn next_launch(plan: &Plan, lines: &[Line]) -> Option<NextLaunch> {
    let kept: Vec<usize> = plan.series().map(|(point, arm)| kept(lines, point, arm)).collect();
    let fewest = kept.iter().copied().min()?;
    let look = plan.looks.quads.iter().position(|wanted| fewest < *wanted)?;
    let wanted = plan.looks.quads[look];
    let starts =
        || lines.iter().filter_map(|l| if let Line::Launch(l) = l { Some(l) } else { None });
    let slow = starts().next().is_some_and(|l| l.start_ms > SLOW_START_MS);
    let per_launch = plan.looks.quads_per_launch << if slow { look } else { 0 };
    Some(NextLaunch {
        launch: starts().map(|l| l.launch.saturating_add(1)).max().unwrap_or(0),
        quads: kept.iter().map(|k| wanted.saturating_sub(*k).min(per_launch)).collect(),
    })
}

/// Kept quads of one series.
pub(super) fn kept(lines: &[Line], point: usize, arm: &str) -> usize {
    lines
        .iter()
        .filter(
            |l| matches!(l, Line::Quad(q) if q.point == point && q.arm == arm && !is_dropped(q)),
        )
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, plan};
    use super::*;

    fn launches(start_ms: f64) -> Vec<usize> {
        let plan = plan(1.0);
        let all = lines(80, |_| 1.0);
        let mut so_far: Vec<Line> = Vec::new();
        let mut quads = all.iter().filter(|l| matches!(l, Line::Quad(_))).cloned();
        let Some(Line::Launch(template)) = all.first() else { panic!("starts with a launch") };
        let mut sizes = Vec::new();
        while let Some(next) = next_launch(&plan, &so_far) {
            assert_eq!(next.launch as usize, sizes.len());
            let mut launch = template.clone();
            (launch.launch, launch.start_ms) = (next.launch, start_ms);
            so_far.push(Line::Launch(launch));
            so_far.extend(quads.by_ref().take(next.quads[0]));
            sizes.push(next.quads[0]);
        }
        sizes
    }

    #[test]
    fn each_look_adds_launches() {
        assert_eq!(launches(900.0), [5; 16]);
    }

    #[test]
    fn slow_launches_take_more_quads_at_each_look() {
        assert_eq!(launches(6000.0), [5, 5, 5, 5, 10, 10, 20, 20]);
    }

    #[test]
    fn an_interrupted_launch_is_made_up_for() {
        let plan = plan(1.0);
        let part = lines(3, |_| 1.0);
        let next = next_launch(&plan, &part).unwrap();
        assert_eq!((next.launch, next.quads[0]), (1, 5));
        let near = lines(18, |_| 1.0);
        assert_eq!(next_launch(&plan, &near).unwrap().quads[0], 2);
        assert_eq!(next_launch(&plan, &lines(80, |_| 1.0)), None);
    }
}
