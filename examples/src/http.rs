use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Outcome;

/// The least that asks a service for something: a POST without a body. Returns the status and the body.
///
/// # Errors
///
/// Where nobody listens, or what answers does not speak HTTP.
pub async fn post(address: &str, path: &str) -> Outcome<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    parse(&answer).ok_or_else(|| format!("{address} does not speak HTTP").into())
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
        assert_eq!(parse(answer), Some((201, "ok".to_owned())));
        assert_eq!(parse("-ERR unknown command"), None);
    }
}
