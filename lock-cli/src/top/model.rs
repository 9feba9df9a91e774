//! What `top` shows, and what keys do to it. No terminal and no server here.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use lock_core::{ListedLock, LockInfo};

use crate::shown;
use crate::unlock::{Hold, are_among, holds};

/// A lock on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: String,
    /// As in lists.
    pub(super) kind: String,
    /// As text, also for several of them.
    pub(super) holder: String,
    pub(super) holds: Vec<Hold>,
    pub(super) since: Option<SystemTime>,
    pub(super) left: Duration,
    pub(super) waiters: u64,
    /// How often the lock was seen with another holder than before.
    pub(super) changes: u64,
}

impl Row {
    /// What tells it from all others: a reentrant lock and an exclusive one may have the same key.
    fn id(&self) -> (&str, &str) {
        (&self.key, &self.kind)
    }

    /// Whether no other holder has come than those on the screen.
    pub(super) fn is_held_as(&self, info: &LockInfo) -> bool {
        are_among(info, &self.holds)
    }

    pub(super) fn held(&self) -> Duration {
        let since = self.since.and_then(|since| since.elapsed().ok());
        since.unwrap_or_default()
    }
}

/// The column by which the rows are sorted, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Waiters,
    Held,
    Changes,
    Key,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Held,
            Self::Held => Self::Changes,
            Self::Changes => Self::Key,
            Self::Key => Self::Waiters,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Held => "held",
            Self::Changes => "changes",
            Self::Key => "key",
        }
    }
}

/// What the lower part of the screen is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    List,
    /// The filter is being typed.
    Filter,
    /// One lock is open.
    Open {
        row: Row,
        info: Option<Box<LockInfo>>,
    },
    /// Whether this lock is to be taken from its holder.
    Question(Row),
}

/// A key of the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Press {
    Char(char),
    /// Ctrl-C.
    Interrupt,
    Up,
    Down,
    Enter,
    Escape,
    Backspace,
}

/// What a key asks for beyond the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// To look at this lock.
    Look(Row),
    Unlock(Row),
}

/// For each lock its last holds, and how often those were others than before.
type Changes = HashMap<(String, String), (Vec<Hold>, u64)>;

#[derive(Debug, Default)]
pub(super) struct Model {
    rows: Vec<Row>,
    changes: Changes,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) mode: Mode,
    selected: usize,
    /// The last error, or what was done.
    pub(super) said: String,
}

impl Model {
    /// The locks of another look at the server.
    pub(super) fn update(&mut self, listed: &[ListedLock]) {
        let selected = self.selected().cloned();
        let known = std::mem::take(&mut self.changes);
        self.rows = listed.iter().map(|lock| self.row(lock, &known)).collect();
        let Some(selected) = selected else { return };
        let place = self
            .shown()
            .iter()
            .position(|row| row.id() == selected.id());
        self.selected = place.unwrap_or(self.selected);
    }

    fn row(&mut self, lock: &ListedLock, known: &Changes) -> Row {
        let (info, kind) = (lock.info(), lock.kind().to_owned());
        let id = (lock.key().to_owned(), kind.clone());
        let holds = holds(info);
        let changes = match known.get(&id) {
            Some((before, changes)) => changes + u64::from(*before != holds),
            None => 0,
        };
        self.changes.insert(id, (holds.clone(), changes));
        Row {
            key: lock.key().to_owned(),
            kind,
            holder: shown::holder(info),
            holds,
            since: info.held_since(),
            left: info.remaining().unwrap_or_default(),
            waiters: info.waiters(),
            changes,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn waiters(&self) -> u64 {
        self.rows.iter().map(|row| row.waiters).sum()
    }

    /// The rows that the filter leaves, in their order.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let matches =
            |row: &&Row| row.key.contains(&self.filter) || row.holder.contains(&self.filter);
        let mut shown: Vec<_> = self.rows.iter().filter(matches).collect();
        shown.sort_by(|a, b| {
            let by_order = match self.order {
                Order::Waiters => b.waiters.cmp(&a.waiters),
                Order::Held => a.since.cmp(&b.since),
                Order::Changes => b.changes.cmp(&a.changes),
                Order::Key => a.key.cmp(&b.key),
            };
            by_order.then_with(|| a.key.cmp(&b.key))
        });
        shown
    }

    /// The place of the selected row among those that are shown.
    pub(super) fn place(&self) -> usize {
        self.selected.min(self.shown().len().saturating_sub(1))
    }

    fn selected(&self) -> Option<&Row> {
        self.shown().get(self.place()).copied()
    }

    pub(super) fn press(&mut self, press: Press) -> Wish {
        self.said.clear();
        match (&self.mode, press) {
            (_, Press::Interrupt) => return Wish::Quit,
            (Mode::Question(row), press) => {
                let row = row.clone();
                self.mode = Mode::List;
                if press == Press::Char('y') {
                    return Wish::Unlock(row);
                }
                self.said = format!("{} stays as it is", row.key);
            }
            (Mode::Filter, Press::Escape) => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            (Mode::Filter, Press::Backspace) => drop(self.filter.pop()),
            (Mode::Filter, Press::Char(c)) => self.filter.push(c),
            (Mode::Filter, Press::Enter) | (Mode::Open { .. }, Press::Escape | Press::Enter) => {
                self.mode = Mode::List;
            }
            (_, Press::Char('q')) => return Wish::Quit,
            (Mode::Open { row, .. }, Press::Char('u')) => self.mode = Mode::Question(row.clone()),
            (Mode::List, Press::Char('u')) => {
                if let Some(row) = self.selected() {
                    self.mode = Mode::Question(row.clone());
                }
            }
            (Mode::List, Press::Enter) => {
                if let Some(row) = self.selected().cloned() {
                    self.mode = Mode::Open {
                        row: row.clone(),
                        info: None,
                    };
                    return Wish::Look(row);
                }
            }
            (Mode::List, Press::Char('/')) => self.mode = Mode::Filter,
            (Mode::List, Press::Char('s')) => self.order = self.order.next(),
            (Mode::List, Press::Up) => self.selected = self.place().saturating_sub(1),
            (Mode::List, Press::Down) => self.selected = self.place() + 1,
            _ => {}
        }
        Wish::Nothing
    }

    /// The lock that is open.
    pub(super) fn open(&self) -> Option<Row> {
        match &self.mode {
            Mode::Open { row, .. } => Some(row.clone()),
            _ => None,
        }
    }

    /// The state of the lock that is open.
    pub(super) fn looked(&mut self, of: &Row, seen: LockInfo) {
        if let Mode::Open { row, info } = &mut self.mode
            && row == of
        {
            *info = Some(Box::new(seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, waiters: u64, held: u64) -> Row {
        Row {
            key: key.to_owned(),
            kind: "exclusive".to_owned(),
            holder: format!("holder-of-{key}"),
            holds: Vec::new(),
            since: Some(SystemTime::now() - Duration::from_secs(held)),
            left: Duration::from_secs(20),
            waiters,
            changes: 0,
        }
    }

    fn model() -> Model {
        Model {
            rows: vec![row("b", 1, 50), row("a", 7, 10), row("c", 7, 99)],
            ..Model::default()
        }
    }

    fn keys(model: &Model) -> String {
        model.shown().iter().map(|row| row.key.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let mut model = model();
        assert_eq!(keys(&model), "acb");
        model.press(Press::Char('s'));
        assert_eq!(keys(&model), "cba", "held longest first");
        for press in [
            Press::Char('/'),
            Press::Char('-'),
            Press::Char('c'),
            Press::Enter,
        ] {
            assert_eq!(model.press(press), Wish::Nothing);
        }
        assert_eq!((keys(&model).as_str(), &model.mode), ("c", &Mode::List));
        // While a filter is typed, letters are text.
        model.press(Press::Char('/'));
        assert_eq!(model.press(Press::Char('q')), Wish::Nothing);
        model.press(Press::Escape);
        assert_eq!(keys(&model), "cba");
        assert_eq!(model.press(Press::Char('q')), Wish::Quit);
    }

    #[test]
    fn a_lock_is_taken_only_after_a_yes() {
        let mut model = model();
        model.press(Press::Down);
        model.press(Press::Char('u'));
        assert!(matches!(&model.mode, Mode::Question(row) if row.key == "c"));
        assert_eq!(model.press(Press::Enter), Wish::Nothing);
        assert_eq!(model.said, "c stays as it is");
        model.press(Press::Char('u'));
        let wish = model.press(Press::Char('y'));
        assert!(matches!(wish, Wish::Unlock(row) if row.key == "c"));
    }

    #[test]
    fn the_selection_stays_on_the_screen() {
        let mut model = model();
        for _ in 0..9 {
            model.press(Press::Down);
        }
        assert_eq!(model.place(), 2);
        model.press(Press::Up);
        assert_eq!(model.place(), 1);
        model.rows.clear();
        assert_eq!(
            (model.place(), model.press(Press::Enter)),
            (0, Wish::Nothing)
        );
        assert_eq!(model.mode, Mode::List);
    }
}
