//! Quality of the candidates beside the baseline: teacher-forced on the windows of a text, against
//! budgets that the file states before the run.

use crate::generation::Evaluation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// How quality is measured, and what it may cost.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualitySpec {
    /// A UTF-8 text. It is measured where the model is a folder with a tokeniser; weights that nobody
    /// trained have no quality.
    pub corpus: PathBuf,
    /// Tokens of a window; every window is a sequence of its own.
    #[schemars(range(min = 2))]
    pub window_tokens: usize,
    /// Tokens of the text that are used.
    #[schemars(range(min = 2))]
    pub corpus_tokens: usize,
    /// What a candidate may lose; beyond a budget the decision is `decline`.
    #[schemars(length(min = 1))]
    pub budgets: Vec<Budget>,
}

/// A limit of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub metric: QualityMetric,
    /// The candidate it is about (default: every one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Of `prefill_logits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<LogitCheck>,
}

/// How logits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogitCheck {
    /// Every logit of every row is that of the baseline.
    BitwiseEqual,
}

/// A figure of quality. All but `prefill_logits` are of the rows that decode computes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QualityMetric {
    /// Mean negative log-likelihood of a token minus the baseline's, in nats.
    NllDeltaNats,
    /// Share of rows with the largest logit at the baseline's id.
    Top1Agreement,
    /// Root of the mean squared difference of logits.
    LogitRms,
    /// Largest difference of a logit.
    LogitMaxAbs,
    /// Mean Kullback-Leibler divergence from the baseline, in nats.
    KlMeanNats,
    /// Logits of prefill against the baseline's.
    PrefillLogits,
}

impl fmt::Display for QualityMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QualityMetric::NllDeltaNats => "nll_delta_nats",
            QualityMetric::Top1Agreement => "top1_agreement",
            QualityMetric::LogitRms => "logit_rms",
            QualityMetric::LogitMaxAbs => "logit_max_abs",
            QualityMetric::KlMeanNats => "kl_mean_nats",
            QualityMetric::PrefillLogits => "prefill_logits",
        })
    }
}

/// What was measured, or why nothing was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum QualityRecord {
    Measured {
        /// The text's file name and digest.
        corpus: String,
        corpus_sha256: String,
        window_tokens: usize,
        scored_tokens: usize,
        /// Mean negative log-likelihood of the baseline, in nats.
        baseline_nll_nats: f64,
        arms: BTreeMap<String, Figures>,
        budgets: Vec<Budget>,
    },
    Unavailable {
        reason: String,
    },
}

/// Figures of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub nll_delta_nats: f64,
    pub top1_agreement: f64,
    pub logit_rms: f64,
    pub logit_max_abs: f64,
    pub kl_mean_nats: f64,
    /// Largest difference of a logit of prefill; where a budget asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_max_abs: Option<f64>,
}

impl Figures {
    /// The figures of an evaluation against the baseline.
    pub(super) fn of(evaluation: &Evaluation) -> Option<Figures> {
        let a = evaluation.agreement?;
        Some(Figures {
            nll_delta_nats: a.nll_delta,
            top1_agreement: a.top1_agreement,
            logit_rms: a.logit_rms,
            logit_max_abs: a.logit_max_abs,
            kl_mean_nats: a.kl_mean,
            prefill_max_abs: None,
        })
    }

    /// A figure; `None` where it was not measured.
    pub fn get(&self, metric: QualityMetric) -> Option<f64> {
        match metric {
            QualityMetric::NllDeltaNats => Some(self.nll_delta_nats),
            QualityMetric::Top1Agreement => Some(self.top1_agreement),
            QualityMetric::LogitRms => Some(self.logit_rms),
            QualityMetric::LogitMaxAbs => Some(self.logit_max_abs),
            QualityMetric::KlMeanNats => Some(self.kl_mean_nats),
            QualityMetric::PrefillLogits => self.prefill_max_abs,
        }
    }
}

/// What one budget says of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetResult {
    pub arm: String,
    /// `nll_delta_nats of packed is 0.0123, at most 0.05`.
    pub sentence: String,
    pub holds: bool,
}

impl QualityRecord {
    /// Every budget's result; none where nothing was measured.
    pub fn results(&self) -> Vec<BudgetResult> {
        let QualityRecord::Measured { arms, budgets, .. } = self else { return Vec::new() };
        let mut results = Vec::new();
        for budget in budgets {
            let meant = |arm: &str| budget.arm.as_deref().is_none_or(|named| named == arm);
            for (arm, figures) in arms.iter().filter(|(arm, _)| meant(arm)) {
                let (holds, sentence) = budget.judge(arm, figures);
                results.push(BudgetResult { arm: arm.clone(), sentence, holds });
            }
        }
        results
    }

    /// Sentences about budgets that are exceeded.
    pub fn exceeded(&self) -> Vec<String> {
        let failed = self.results().into_iter().filter(|r| !r.holds);
        failed.map(|r| format!("quality: {}", r.sentence)).collect()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arm = self.arm.as_deref().map(|arm| format!(" of {arm}")).unwrap_or_default();
        match self.check {
            Some(LogitCheck::BitwiseEqual) => {
                write!(f, "{}{arm}: those of the baseline, bit for bit", self.metric)
            }
            None => write!(f, "{}{arm}: {}", self.metric, self.limits()),
        }
    }
}

impl Budget {
    /// What is wrong with it, if anything.
    pub(super) fn problem(&self, candidates: &[&str]) -> Option<String> {
        let limits = [self.at_most, self.at_least];
        let metric = self.metric;
        if let Some(arm) = self.arm.as_deref().filter(|arm| !candidates.contains(arm)) {
            return Some(format!("a budget names `{arm}`, which is no candidate"));
        }
        match (metric, self.check) {
            (QualityMetric::PrefillLogits, None) => {
                Some("a budget of `prefill_logits` needs `check: bitwise_equal`".into())
            }
            (QualityMetric::PrefillLogits, Some(_)) if limits.iter().any(Option::is_some) => {
                Some("`prefill_logits` has a check and no limit".into())
            }
            (QualityMetric::PrefillLogits, Some(_)) => None,
            (_, Some(_)) => Some(format!("`check` is for `prefill_logits`, not for `{metric}`")),
            _ if limits.iter().all(Option::is_none) => {
                Some(format!("the budget of `{metric}` has no limit"))
            }
            _ if limits.iter().flatten().any(|l| !l.is_finite()) => {
                Some(format!("the limit of `{metric}` is not finite"))
            }
            _ => None,
        }
    }

    /// Whether it holds; what is not measured or not finite never does.
    fn judge(&self, arm: &str, figures: &Figures) -> (bool, String) {
        let metric = self.metric;
        let Some(value) = figures.get(metric) else {
            return (false, format!("{metric} of {arm} was not measured"));
        };
        if self.check.is_some() {
            let holds = value == 0.0;
            let words = if holds { "are" } else { "are not" };
            let sentence = format!("prefill logits of {arm} {words} those of the baseline");
            return (holds, sentence);
        }
        let holds = value.is_finite()
            && self.at_most.is_none_or(|limit| value <= limit)
            && self.at_least.is_none_or(|limit| value >= limit);
        (holds, format!("{metric} of {arm} is {value:.4}, budget {}", self.limits()))
    }

    /// `at most 0.05`.
    fn limits(&self) -> String {
        let limits = [("at most", self.at_most), ("at least", self.at_least)];
        let limits: Vec<String> =
            limits.iter().filter_map(|(word, l)| Some(format!("{word} {}", (*l)?))).collect();
        limits.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(budget: Budget, change: impl Fn(&mut Figures)) -> QualityRecord {
        let mut figures = Figures {
            nll_delta_nats: 0.04,
            top1_agreement: 0.9,
            logit_rms: 0.3,
            logit_max_abs: 2.0,
            kl_mean_nats: 0.05,
            prefill_max_abs: Some(0.0),
        };
        change(&mut figures);
        QualityRecord::Measured {
            corpus: "a.txt".into(),
            corpus_sha256: "00".into(),
            window_tokens: 64,
            scored_tokens: 630,
            baseline_nll_nats: 3.0,
            arms: [("packed".to_owned(), figures)].into(),
            budgets: vec![budget],
        }
    }

    fn budget(metric: QualityMetric, at_most: Option<f64>, at_least: Option<f64>) -> Budget {
        Budget { metric, arm: None, at_most, at_least, check: None }
    }

    #[test]
    fn budgets_hold_or_say_by_how_much_they_do_not() {
        let nll = budget(QualityMetric::NllDeltaNats, Some(0.05), None);
        assert_eq!(record(nll.clone(), |_| ()).exceeded(), [] as [String; 0]);
        assert_eq!(
            record(nll.clone(), |f| f.nll_delta_nats = 0.06).exceeded(),
            ["quality: nll_delta_nats of packed is 0.0600, budget at most 0.05"]
        );
        assert_eq!(record(nll, |f| f.nll_delta_nats = f64::NAN).exceeded().len(), 1, "NaN");
        let top = budget(QualityMetric::Top1Agreement, None, Some(0.91));
        assert_eq!(record(top, |_| ()).exceeded().len(), 1);
        let bits = Budget {
            check: Some(LogitCheck::BitwiseEqual),
            ..budget(QualityMetric::PrefillLogits, None, None)
        };
        assert_eq!(record(bits.clone(), |_| ()).exceeded().len(), 0);
        assert_eq!(record(bits.clone(), |f| f.prefill_max_abs = Some(1e-9)).exceeded().len(), 1);
        assert_eq!(record(bits, |f| f.prefill_max_abs = None).exceeded().len(), 1, "not measured");
    }

    #[test]
    fn budgets_that_cannot_decide_are_refused() {
        let problem = |b: Budget| b.problem(&["packed"]);
        let nll = || budget(QualityMetric::NllDeltaNats, Some(0.05), None);
        assert_eq!(problem(nll()), None);
        assert!(problem(Budget { at_most: None, ..nll() }).is_some());
        assert!(problem(Budget { at_most: Some(f64::NAN), ..nll() }).is_some());
        assert!(problem(Budget { arm: Some("pcked".into()), ..nll() }).is_some());
        assert!(problem(Budget { check: Some(LogitCheck::BitwiseEqual), ..nll() }).is_some());
        assert!(problem(budget(QualityMetric::PrefillLogits, None, None)).is_some());
    }
}
