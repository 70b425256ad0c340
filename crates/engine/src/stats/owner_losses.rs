//! Losses of a full ring by owner: whose tasks they were.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{FIRST_NAMESPACE, WireRingOwner};

/// Who pays for what a task does; see `bpf/lib/task_owner.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskOwner {
    /// A user of the initial user namespace, also for the user namespaces that he has made.
    User(u32),
    /// A container: the inode number of its process namespace, or of its user namespace if root made that.
    Namespace(u32),
    /// All owners after those that the programs tell apart.
    Others,
}

/// Events of one owner that were lost because the ring had no room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLoss {
    /// Whose events they were.
    pub owner: TaskOwner,
    /// Events lost since the programs were loaded.
    pub lost: u64,
    /// Of these, events that the log reports; written by [`OwnerLosses::add_reported`] of this daemon or one before it.
    pub reported: u64,
    /// Its place in the table of the programs.
    pub index: usize,
}

impl OwnerLoss {
    /// Lost events that the log does not report yet.
    #[must_use]
    pub const fn unreported(&self) -> u64 {
        self.lost.saturating_sub(self.reported)
    }
}

/// The losses of all owners: mapped globals of the programs.
#[derive(Clone, Copy, Debug)]
pub struct OwnerLosses {
    owners: NonNull<WireRingOwner>,
    len: usize,
    /// [`Self::OTHERS`] values.
    others: NonNull<WireRingOwner>,
}

impl OwnerLosses {
    /// Places for all owners without one of their own: of those who can be many, and of all others.
    pub(crate) const OTHERS: usize = 2;

    /// `owners` points to `len` values, and `others` to [`Self::OTHERS`]; both outlive the new value and all copies of
    /// it.
    pub(crate) const fn new(
        owners: NonNull<WireRingOwner>,
        len: usize,
        others: NonNull<WireRingOwner>,
    ) -> Self {
        Self {
            owners,
            len,
            others,
        }
    }

    /// Owners that have lost events, the largest losses first. Makes no system call.
    #[must_use]
    pub fn read(self) -> Vec<OwnerLoss> {
        let mut losses: Vec<OwnerLoss> = (0..self.len + Self::OTHERS)
            .filter_map(|index| self.loss_at(index))
            .filter(|loss| loss.lost != 0)
            .collect();
        losses.sort_by_key(|loss| (std::cmp::Reverse(loss.lost), loss.owner));
        losses
    }

    /// Notes that the log reports so many events more of the owner with this [`OwnerLoss::index`].
    pub fn add_reported(self, index: usize, events: u64) {
        let Some(place) = self.place(index) else {
            return;
        };
        // SAFETY: this computes the address of a member of a mapped value, and makes no reference.
        let reported = unsafe { &raw mut (*place.as_ptr()).reported };
        // SAFETY: the address is mapped and aligned, as that of the value. Programs do not access the member.
        let reported = unsafe { AtomicU64::from_ptr(reported) };
        reported.fetch_add(events, Ordering::Relaxed);
    }

    fn place(self, index: usize) -> Option<NonNull<WireRingOwner>> {
        match index {
            // SAFETY: the index is below the number of values.
            index if index < self.len => Some(unsafe { self.owners.add(index) }),
            index if index < self.len + Self::OTHERS => {
                // SAFETY: the index less `len` is below the number of values.
                Some(unsafe { self.others.add(index - self.len) })
            }
            _ => None,
        }
    }

    fn loss_at(self, index: usize) -> Option<OwnerLoss> {
        // SAFETY: the address is mapped and aligned, and the type is valid for any bits. A program may change the
        // counters meanwhile; each is a word.
        let found = unsafe { self.place(index)?.read_volatile() };
        let owner = match found.key.checked_sub(1) {
            _ if index >= self.len => TaskOwner::Others,
            None => return None,
            Some(number) if number < FIRST_NAMESPACE => TaskOwner::User(number),
            Some(number) => TaskOwner::Namespace(number),
        };
        Some(OwnerLoss {
            owner,
            lost: found.lost,
            reported: found.reported,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_with_their_owners() {
        let place = |key, lost| {
            let mut place = WireRingOwner::default();
            (place.key, place.lost) = (key, lost);
            place
        };
        let mut owners = [
            place(0, 0),
            place(1 + 1001, 3),
            place(1 + 33, 0),
            place(1 + 0xf000_0007, 9),
        ];
        let mut others = [place(0, 4), place(0, 0)];
        let losses = OwnerLosses::new(
            NonNull::new(owners.as_mut_ptr()).unwrap(),
            owners.len(),
            NonNull::new(others.as_mut_ptr()).unwrap(),
        );
        let found = losses.read();
        let by_owner: Vec<_> = found.iter().map(|loss| (loss.owner, loss.lost)).collect();
        assert_eq!(
            by_owner,
            [
                (TaskOwner::Namespace(0xf000_0007), 9),
                (TaskOwner::Others, 4),
                (TaskOwner::User(1001), 3),
            ]
        );
        for loss in &found {
            losses.add_reported(loss.index, 2);
        }
        losses.add_reported(found[0].index, 1);
        let reported: Vec<_> = losses.read().iter().map(|loss| loss.reported).collect();
        assert_eq!(reported, [3, 2, 2]);
    }
}
