use crate::results::Results;
pub(crate) fn all(_results: &Results) -> Vec<(&'static str, String)> {
    Vec::new()
}
