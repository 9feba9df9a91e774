//! Random calls of the library's scripts.

use fastrand::Rng;
use lock_tests::{TestServer, scripts};

use super::data;
use super::faults::Fault;
use super::pair::{self, Pair, Words};

const VET: &str = "quorum vet";

/// The scripts of each kind of lock by name, and the words of a call, where a small word stands for what
/// is drawn (see [`Caller::word`]).
const KINDS: [&[(&str, &str)]; 3] = [
    &[
        ("acquire", "4 L Q F W tok ttl waits"),
        ("acquire", "4 L Q F W tok ttl waits gap"),
        ("release", "4 L Q F W tok"),
        ("release", "2 L Q tok"),
        ("pass", "4 L Q F W tok ttl waits gap tok"),
        ("batch", "5 F L L2 Q Q2 2 tok tok ttl"),
        ("batch", "5 F L L2 Q Q2 1 tok tok ttl"),
        ("batch", "5 F L L2 Q Q2 0 tok tok"),
        ("batch", "7 F L L2 L3 Q Q2 Q3 2 tok tok tok ttl ttl"),
        ("extend", "2 L L2 tok tok ttl"),
        ("extend", "2 L L2 tok tok ttl ttl"),
        ("inspect", "2 L Q"),
        ("format", "1 F 1"),
        ("force_release", "4 L Q F W"),
    ],
    &[
        ("reentrant acquire", "3 L H F owner tok ttl gap"),
        ("reentrant acquire", "3 L H F owner tok ttl gap"),
        ("reentrant release", "3 L H ch owner tok PUBLISH"),
        ("reentrant release", "3 L H ch owner tok SPUBLISH"),
        (
            "reentrant extend",
            "4 L H L2 H2 owner tok ttl owner tok ttl",
        ),
        ("reentrant inspect", "1 L"),
        ("reentrant force_release", "3 L H ch PUBLISH"),
    ],
    &[
        ("quorum acquire", "3 L Q W cast ttl vote counter"),
        ("quorum acquire", "3 L Q W cast ttl vote gap counter"),
        ("quorum release", "3 L Q W cast"),
        ("quorum undo", "1 L cast"),
        ("quorum extend", "2 L L2 cast cast ttl counter"),
        ("quorum force_release", "3 L Q W client"),
        ("quorum heal", "1 L cast ttl counter"),
        ("quorum raise", "1 L cast 8000000000000500 counter"),
        ("quorum inspect", "3 L Q note"),
        (VET, "1 note vet label a,b,c 3600000 run replid boot 0 1"),
        (VET, "1 note join label a,b,c 3600000 run replid boot 9 1"),
        (
            VET,
            "1 note new a a,b,c 3600000 run replid boot 8000000000000000 1",
        ),
        (VET, "1 note begin a a,b,c 3600000 run replid boot 0 1"),
        (VET, "1 note anew a a,b,c wait run replid boot 0 1"),
    ],
];

/// What others do to the same keys. Queues with waiters that are long dead, counters that are none, values of other types.
const FOREIGN: [&str; 24] = [
    "DEL L",
    "PEXPIRE L ttl",
    "PERSIST L",
    "SET L tok PX ttl",
    "SET L tok",
    "SET L strange",
    "RPUSH L tok",
    "HSET L owner 1",
    "HSET L owner 0 other 1",
    "PEXPIRE L 0",
    "LPOP Q",
    "RPUSH Q tok",
    "DEL Q",
    "DEL W",
    "SET Q tok",
    "HSET W tok strange",
    "HSET W client dead",
    "HSET W client poor tok good",
    "SET W tok",
    "SET F 8000000000000000",
    "SET F garbage",
    "RPUSH F a",
    "DEL F",
    "HSET H owner owner fence 5 tok 1",
];

const CLIENTS: [&str; 3] = [
    "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa",
    "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb",
    "cccccccc-cccc-4ccc-8ccc-cccccccccccc",
];

/// Two channels that are listened to; the third client is not there.
const LISTENED: &str = "lock-core:client:aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa \
    lock-core:client:bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb ch";

/// The text of a script, as the library puts it together.
fn text(name: &str) -> String {
    let text = &scripts::scripts()[name].text;
    // A vote that is kept for a waiter would end while the test runs, at the one a moment before it ends at the other.
    text.replace("local OFFER = 50", "local OFFER = 60000")
}

struct Caller {
    rng: Rng,
}

impl Caller {
    fn pick(&mut self, from: &[&str]) -> String {
        self.rng
            .choice(from)
            .copied()
            .unwrap_or_default()
            .to_owned()
    }

    fn word(&mut self, word: &str) -> String {
        match word {
            "tok" => format!("{}:{}:orders-7", self.pick(&CLIENTS), self.rng.u8(0..3)),
            "cast" => format!("{}{{{}}}", self.word("tok"), self.rng.u8(0..4)),
            "client" if self.rng.bool() => String::new(),
            "client" => self.pick(&CLIENTS),
            "counter" => self.pick(&["F", "lock-core:quorum:fence:b"]),
            "Q" | "Q2" | "Q3" | "W" | "H" | "H2" => format!("lock-core:{word}"),
            "note" => "lock-core:quorum".to_owned(),
            "label" => self.pick(&["a", "a", "b"]),
            "boot" => self.pick(&["b", "b", "c"]),
            "replid" => self.pick(&["", "", "5f0"]),
            // Far from the time of a test: the two clocks are a few milliseconds apart.
            "wait" => self.pick(&["3600000", "7200000"]),
            "ttl" => self.pick(&["70000", "90000", "500000"]),
            "waits" => {
                let mode = self.pick(&["try", "wait", "wait", "wait"]);
                let alive = self.pick(&["60000", "60000", "-20000"]);
                format!("{mode} {alive} {}", self.word("chan"))
            }
            "chan" if self.rng.u8(0..4) == 0 => String::new(),
            "chan" => format!("lock-core:client:{}", self.pick(&CLIENTS)),
            "gap" => self.pick(&["0", "7", "100"]),
            "run" => self.pick(&["one", "one", "other"]),
            "owner" | "other" => self.pick(&["owner", "other"]),
            "vote" => self.pick(&["wait 60000 push 5", "wait 60000 poll 7", "try 60000 push 9"]),
            "dead" => format!("1000 lock-core:client:{}", self.pick(&CLIENTS)),
            "poor" => "9000000000000 ".to_owned(),
            "good" => "70000 7".to_owned(),
            word => word.to_owned(),
        }
    }

    /// The words of a call or a command; now and then one of them is odd.
    fn words(&mut self, template: &str) -> Words {
        let words = template.split(' ').map(|word| self.word(word).into_bytes());
        let mut words: Words = words.collect::<Vec<_>>();
        if self.rng.u8(0..25) == 0 {
            let place = self.rng.usize(0..words.len());
            words[place] = self
                .pick(&["", "0", "-1", "x", "1.5", "L", "Q", "W", "100000"])
                .into();
        }
        if self.rng.u8(0..60) == 0 && words.len() > 1 {
            words.pop();
        }
        words
    }

    fn call(&mut self, name: &str, template: &str) -> Words {
        let text = text(name);
        let mut call: Words = if self.rng.u8(0..4) == 0 {
            vec![
                "EVALSHA".into(),
                sha1_smol::Sha1::from(&text).digest().to_string().into(),
            ]
        } else {
            vec!["EVAL".into(), text.into()]
        };
        call.extend(self.words(template));
        call
    }

    fn step(&mut self, kind: usize) -> Words {
        match self.rng.u8(0..100) {
            0..75 => {
                let (name, template) = self.rng.choice(KINDS[kind]).copied().expect("one");
                self.call(name, template)
            }
            75..97 => {
                let template = self.pick(&FOREIGN);
                self.words(&template)
            }
            97 => vec!["SCRIPT".into(), "FLUSH".into()],
            _ => data::draw(&mut self.rng),
        }
    }
}

/// Sequences of calls, where something is wrong with the server for a part of each.
fn run(
    server: &TestServer,
    seeds: std::ops::Range<u64>,
    fault: impl Fn(&mut Rng) -> Option<Fault>,
) {
    for seed in seeds {
        play(server, seed, &fault).agree();
    }
}

/// The steps of a seed, asked of both servers.
fn play(server: &TestServer, seed: u64, fault: &impl Fn(&mut Rng) -> Option<Fault>) -> Pair {
    let mut caller = Caller {
        rng: Rng::with_seed(seed),
    };
    let mut pair = Pair::new(server, 2 + caller.rng.u8(0..2));
    pair.listen(LISTENED);
    let kind = caller.rng.usize(0..KINDS.len());
    if caller.rng.bool() {
        pair.ask(&caller.words("SET F 8000000000000000"));
    }
    for _ in 0..3 {
        for _ in 0..15 {
            let words = caller.step(kind);
            pair.ask(&words);
        }
        if let Some(fault) = fault(&mut caller.rng) {
            pair.break_by(&fault);
            for _ in 0..8 {
                let words = caller.step(kind);
                pair.ask(&words);
            }
            pair.mend(&fault);
        }
    }
    pair.look();
    pair
}

#[tokio::test]
async fn calls_of_every_script_are_answered_as_by_a_server() {
    let server = pair::server().await;
    run(&server, 0..400, |_| None);
}

#[tokio::test]
async fn a_server_that_refuses_says_so_in_the_same_words() {
    let server = pair::server().await;
    run(&server, 1000..1300, |rng| Some(Fault::draw(rng)));
}
