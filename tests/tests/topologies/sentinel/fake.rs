//! A sentinel that says what the test wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A sentinel without a master of its own. It speaks RESP2, so it is asked each second.
pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    says: Arc<Mutex<(u64, u16)>>,
    task: AbortHandle,
}

impl Fake {
    /// Names the master at this port of this machine, in this epoch.
    pub(crate) async fn start(epoch: u64, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let says = Arc::new(Mutex::new((epoch, port)));
        let all = Arc::clone(&says);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let said = Arc::clone(&all);
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    while let Ok(size @ 1..) = stream.read(&mut request).await {
                        let (epoch, port) = *said.lock().unwrap();
                        let request = String::from_utf8_lossy(&request[..size]).into_owned();
                        let answers: String = request
                            .split('*')
                            .skip(1)
                            .map(|one| answer(one, epoch, port))
                            .collect();
                        let _ = stream.write_all(answers.as_bytes()).await;
                    }
                });
            }
        });
        let task = task.abort_handle();
        Self { addr, says, task }
    }

    pub(crate) fn names(&self, epoch: u64, port: u16) {
        *self.says.lock().unwrap() = (epoch, port);
    }
}

fn answer(request: &str, epoch: u64, port: u16) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let (epoch, port) = (epoch.to_string(), port.to_string());
    if request.contains("HELLO") {
        "-ERR unknown command 'HELLO', with args beginning with: '3' \r\n".to_owned()
    } else if request.contains("GET-MASTER-ADDR-BY-NAME") {
        format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port))
    } else if request.contains("SENTINELS") {
        "*0\r\n".to_owned()
    } else if request.contains("MASTER") {
        // Never the address of this reply: it lags behind.
        let words = ["ip", "10.255.255.1", "port", "1", "config-epoch", &epoch];
        format!("*6\r\n{}", words.map(bulk).concat())
    } else {
        "+OK\r\n".to_owned()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}
