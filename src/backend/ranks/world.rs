//! Where the ranks of one process meet: threads that exchange buffers.

use super::elements::Elements;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Another rank failed, so that nobody will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another rank failed")]
pub struct Abandoned;

/// All ranks of one engine.
///
/// One lock guards everything: ranks are few and meet a few times per layer. A rank that fails wakes
/// all others, which fail as well instead of waiting for ever.
#[derive(Debug)]
pub struct World {
    inner: Mutex<Inner>,
    changed: Condvar,
    groups: Vec<usize>,
    ranks: usize,
}

#[derive(Debug)]
struct Inner {
    failed: bool,
    /// One meeting per group.
    meetings: Vec<Meeting>,
    /// What was sent to each rank and not received yet.
    mail: Vec<Option<Vec<f32>>>,
}

#[derive(Clone, Debug, Default)]
struct Meeting {
    brought: Vec<Option<Elements>>,
    /// What all brought, until the last has taken it.
    together: Option<Arc<Vec<Elements>>>,
    taken: usize,
}

/// A rank's place in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Number of the group.
    pub group: usize,
    /// Number of the rank in it.
    pub index: usize,
}

impl World {
    /// Ranks in groups of these sizes; a rank may belong to several.
    pub fn new(groups: Vec<usize>, ranks: usize) -> Arc<World> {
        let inner = Inner { failed: false, meetings: Vec::new(), mail: Vec::new() };
        let world = World { inner: Mutex::new(inner), changed: Condvar::new(), groups, ranks };
        world.reset();
        Arc::new(world)
    }

    /// Forgets everything that a failed step left. Nobody may be waiting.
    pub fn reset(&self) {
        let mut inner = self.lock();
        let meeting = |size: &usize| Meeting { brought: vec![None; *size], ..Meeting::default() };
        *inner = Inner {
            failed: false,
            meetings: self.groups.iter().map(meeting).collect(),
            mail: vec![None; self.ranks],
        };
    }

    /// Wakes every waiting rank with an error.
    pub fn fail(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    /// Ranks of a group.
    pub fn group_size(&self, group: usize) -> usize {
        self.groups[group]
    }

    /// Brings something and gets what all members of the group brought, by their number.
    ///
    /// # Errors
    /// Another rank failed.
    pub fn exchange(
        &self,
        member: Member,
        brought: Elements,
    ) -> Result<Arc<Vec<Elements>>, Abandoned> {
        let size = self.groups[member.group];
        // The meeting before this one ends when its last member has left.
        let mut inner = self.wait(|inner| inner.meetings[member.group].together.is_none())?;
        let meeting = &mut inner.meetings[member.group];
        meeting.brought[member.index] = Some(brought);
        if meeting.brought.iter().all(Option::is_some) {
            let all = meeting.brought.iter_mut().filter_map(Option::take).collect();
            meeting.together = Some(Arc::new(all));
            meeting.taken = 0;
            self.changed.notify_all();
        }
        drop(inner);
        let mut inner = self.wait(|inner| inner.meetings[member.group].together.is_some())?;
        let meeting = &mut inner.meetings[member.group];
        let all = meeting.together.clone().ok_or(Abandoned)?;
        meeting.taken += 1;
        if meeting.taken == size {
            meeting.together = None;
            self.changed.notify_all();
        }
        Ok(all)
    }

    /// Sends rows to a rank, after what was sent before has been received.
    ///
    /// # Errors
    /// Another rank failed.
    pub fn send(&self, to: usize, rows: Vec<f32>) -> Result<(), Abandoned> {
        let mut inner = self.wait(|inner| inner.mail[to].is_none())?;
        inner.mail[to] = Some(rows);
        self.changed.notify_all();
        Ok(())
    }

    /// Receives the rows sent to a rank.
    ///
    /// # Errors
    /// Another rank failed.
    pub fn receive(&self, rank: usize) -> Result<Vec<f32>, Abandoned> {
        let mut inner = self.wait(|inner| inner.mail[rank].is_some())?;
        let rows = inner.mail[rank].take().ok_or(Abandoned)?;
        self.changed.notify_all();
        Ok(rows)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, ready: impl Fn(&Inner) -> bool) -> Result<MutexGuard<'_, Inner>, Abandoned> {
        let inner = self
            .changed
            .wait_while(self.lock(), |inner| !inner.failed && !ready(inner))
            .unwrap_or_else(PoisonError::into_inner);
        if inner.failed { Err(Abandoned) } else { Ok(inner) }
    }
}

/// One rank's ways to the others.
#[derive(Clone, Debug)]
pub struct Link {
    pub world: Arc<World>,
    /// The ranks that divide heads and rows.
    pub tensor: Member,
    /// The ranks that divide experts.
    pub expert: Member,
    /// This rank's number.
    pub rank: usize,
    /// The rank of the next stage that continues this one's work.
    pub next: Option<usize>,
}
