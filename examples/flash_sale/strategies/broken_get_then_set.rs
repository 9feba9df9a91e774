//! WRONG, for contrast: everybody reads the same number, and everybody writes one less.

use lock_examples::Outcome;

use crate::line::Answer;
use crate::shop::{Order, Till};

pub(crate) async fn sell(till: &Till, order: &Order) -> Outcome<Answer> {
    let stock = till.keys.stock();
    let left = till.left(&stock).await?;
    if left <= 0 {
        return Ok(Answer::SoldOut);
    }
    till.work(order).await;
    till.write(&stock, left - 1, order).await?;
    Ok(Answer::Sold)
}
