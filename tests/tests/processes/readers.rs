//! A writer among the readers of other processes: it waits for the readers before it, and for no later one.

use lock_core::{LockManager, RwLock};
use lock_tests::{LIMIT, TestServer, eventually};

use crate::contender::{Contender, LONG, stamp};

const PROCESSES: usize = 4;
const READERS: usize = 8;
const WRITES: usize = 5;

/// A write, with the stamps read before it was asked for and after it was seen in the queue.
struct Write {
    asked: u64,
    queued: u64,
    fence: u64,
}

/// Proves P8.
#[tokio::test]
async fn a_writer_among_readers_waits_for_those_before_it_only() {
    let server = TestServer::start().await;
    let mut processes: [Contender; PROCESSES] = Contender::several(&server).await;
    for process in &mut processes {
        process.order(&format!("read k {READERS} {}", LONG.as_millis()));
    }
    let (reader, writer) = (named(&server, "test").await, named(&server, "writer").await);
    let mut written = Vec::new();
    for _ in 0..WRITES {
        written.push(write(&reader, &writer).await);
    }

    let mut reads = Vec::new();
    for process in &mut processes {
        process.order("stop");
        while let Some(line) = process.child.next_line().await {
            let Some(read) = line.strip_prefix("grant ") else {
                break;
            };
            let numbers: Vec<u64> = read.split(' ').map(|n| n.parse().unwrap()).collect();
            reads.push((numbers[0], numbers[1], numbers[2]));
        }
    }
    for write in written {
        let (mut before, mut after) = (0, 0);
        for &(fence, asked, granted) in &reads {
            assert!(asked < write.queued || fence > write.fence, "it overtook");
            assert!(granted > write.asked || fence < write.fence);
            before += usize::from(fence < write.fence);
            after += usize::from(fence > write.fence);
        }
        // The readers waited behind each write, and then read.
        assert!(before > 0 && after >= PROCESSES * READERS);
    }
}

async fn named(server: &TestServer, name: &str) -> RwLock {
    let builder = LockManager::builder().client_name(name);
    let builder = builder.command_deadline(LIMIT).default_ttl(LONG);
    builder.connect(&server.url()).await.unwrap().rw_lock("k")
}

/// Writes among the readers of the other processes, and one of this process, which ends only when all others wait.
async fn write(reader: &RwLock, writer: &RwLock) -> Write {
    let last = reader.read().await.unwrap();
    eventually("others read beside it", LIMIT, async || {
        reader.inspect().await.unwrap().holders().len() > 1
    })
    .await;
    let asked = stamp();
    let writing = tokio::spawn(writer.write());
    eventually("the writer is queued", LIMIT, async || {
        let info = reader.inspect().await.unwrap();
        info.queue().first().and_then(|first| first.name()) == Some("writer")
    })
    .await;
    let queued = stamp();
    let mut holders = PROCESSES * READERS + 1;
    eventually("all others wait behind it", LIMIT, async || {
        let info = reader.inspect().await.unwrap();
        assert!(info.holders().len() <= holders, "a reader came in");
        holders = info.holders().len();
        info.waiters() == (PROCESSES * READERS + 1) as u64
    })
    .await;
    assert_eq!(holders, 1);
    assert!(!writing.is_finished());
    last.release().await.unwrap();
    let guard = writing.await.unwrap().unwrap();
    let info = reader.inspect().await.unwrap();
    assert_eq!(info.holders().len(), 1);
    assert_eq!(info.waiters(), (PROCESSES * READERS) as u64);
    let fence = guard.fencing_token().get();
    guard.release().await.unwrap();
    Write {
        asked,
        queued,
        fence,
    }
}
