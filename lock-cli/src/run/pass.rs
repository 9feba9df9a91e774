//! Passing an open file to another process, over a socket.
//!
//! The keeper and the process that becomes the command have a socket as stdin, and get the stdin of the command through it. So no
//! descriptor is inherited by number, and none of these sockets reaches the command.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

pub(super) fn send(socket: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    // A file travels with at least one byte.
    retry_on_intr(|| {
        sendmsg(
            socket,
            &[IoSlice::new(b"f")],
            &mut control,
            SendFlags::empty(),
        )
    })?;
    Ok(())
}

/// `None` if the sender has ended without sending it.
pub(super) fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        recvmsg(socket, &mut bytes, &mut control, RecvFlags::empty())
    })?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let Some(file) = files.next() else {
        return Ok(None);
    };
    // No process is started between these two calls.
    fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(Some(file))
}
