//! The tests' own tools: servers, processes, and the proxy between a manager and its server.

mod harness;
mod proxy;
