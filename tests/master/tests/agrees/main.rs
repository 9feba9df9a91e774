//! The master answers as a real server does.
//!
//! Random commands and calls of the library's scripts go to both. A difference is a mistake of the master.

mod data;
mod faults;
mod lua;
mod pair;
mod same;
mod scripts;

use self::pair::Pair;
use fastrand::Rng;

#[tokio::test]
async fn random_commands_are_answered_as_by_a_server() {
    let server = pair::server().await;
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut pair = Pair::new(&server, 2 + u8::from(rng.bool()));
        pair.listen("ch");
        for _ in 0..60 {
            let words = data::draw(&mut rng);
            pair.ask(&words);
        }
        pair.look();
        pair.agree();
    }
}
