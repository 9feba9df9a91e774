//! The nodes of a quorum as their URLs name them, sets of them, and the size of a majority.

use crate::base::error::LockError;
use crate::store::redis::Url;

/// Maximum nodes of a quorum.
pub(super) const MAXIMUM_NODES: usize = 9;

/// The number of nodes that make a majority.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// A set of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    pub(super) fn all(count: usize) -> Self {
        (0..count).fold(Self::default(), Self::with)
    }

    pub(super) fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn but(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    pub(super) fn has(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// The label of a node in the notes of its quorum, if the URL names one by `node=`. It is taken out of the URL.
pub(super) fn label_in<'a>(url: &mut Url<'a>) -> Result<Option<&'a str>, LockError> {
    let label = url.take("node");
    let is_label = |label: &str| {
        (1..=255).contains(&label.len())
            && label.bytes().all(|it| it.is_ascii_graphic() && it != b',')
    };
    if label.is_some_and(|label| !is_label(label)) {
        return Err(LockError::config(
            "`node=` in the URL of a node is not a name: use up to 255 printable ASCII characters without spaces and commas",
        ));
    }
    Ok(label)
}

/// Refuses a number of nodes that is no quorum, and a node that is named twice: it would have two votes.
pub(super) fn check<S: AsRef<str>>(labels: &[S]) -> Result<(), LockError> {
    let count = labels.len();
    if !(3..=MAXIMUM_NODES).contains(&count) || count.is_multiple_of(2) {
        return Err(LockError::config(format!(
            "a quorum of {count} nodes: name 3, 5, 7 or 9 masters, which do not replicate each other"
        )));
    }
    for (n, label) in labels.iter().enumerate() {
        let label = label.as_ref();
        if labels[..n].iter().any(|other| other.as_ref() == label) {
            return Err(LockError::config(format!(
                "the node {label} is named twice: each master of a quorum has one vote"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_name() {
        let label = |url| label_in(&mut Url::read(url).unwrap()).map(|it| it.map(str::to_owned));
        assert_eq!(label("redis://a/1").unwrap(), None);
        assert_eq!(label("redis://a?node=b:7").unwrap().as_deref(), Some("b:7"));
        for wrong in [
            "redis://a?node=",
            "redis://a?node=b,c",
            "redis://a?node=b c",
        ] {
            assert!(label(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_quorum_is_odd_from_three_to_nine_and_each_node_votes_once() {
        let names: Vec<String> = (0..11).map(|n| format!("a:{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for count in 0..=11 {
            let good = matches!(count, 3 | 5 | 7 | 9);
            assert_eq!(check(&names[..count]).is_ok(), good, "{count}");
        }
        assert!(check(&["a:1", "b:1", "a:1"]).is_err());
    }
}
