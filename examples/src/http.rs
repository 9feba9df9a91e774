use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Outcome;

/// What a service answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The lines between status and body.
    headers: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a header, whose name is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self
            .headers
            .lines()
            .filter_map(|line| line.split_once(": "));
        headers.find_map(|(given, value)| (given == name).then_some(value))
    }
}

/// The least that asks a service for something: a POST without a body. Returns the status and the body.
///
/// # Errors
///
/// Where nobody listens, or what answers does not speak HTTP.
pub async fn post(address: &str, path: &str) -> Outcome<(u16, String)> {
    let Answer { status, body, .. } = ask(address, path).await?;
    Ok((status, body))
}

/// As [`post`], with the headers of the answer.
///
/// # Errors
///
/// As [`post`].
pub async fn ask(address: &str, path: &str) -> Outcome<Answer> {
    request("POST", address, path).await
}

/// As [`ask`], for a page.
///
/// # Errors
///
/// As [`post`].
pub async fn get(address: &str, path: &str) -> Outcome<Answer> {
    request("GET", address, path).await
}

async fn request(method: &str, address: &str, path: &str) -> Outcome<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    parse(&answer).ok_or_else(|| format!("{address} does not speak HTTP").into())
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Answer {
        status,
        headers: head.to_owned(),
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
        let parsed = parse(answer).unwrap();
        assert_eq!((parsed.status, &*parsed.body), (201, "ok"));
        assert_eq!(parsed.header("content-length"), Some("2"));
        assert_eq!(parsed.header("retry-after"), None);
        assert_eq!(parse("-ERR unknown command"), None);
    }
}
