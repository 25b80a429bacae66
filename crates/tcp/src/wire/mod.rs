//! The protocol between two PEs, as a state machine without input and output: the caller passes in
//! the bytes that have come on the stream, and takes the bytes that are to go. So it runs on any
//! reliable stream, and tests run it by the million.
//!
//! Two PEs that talk share one stream of bytes, in both directions. A [`Link`] is one end of it.
//! Both directions are a sequence of records:
//!
//! ```text
//! byte  0     1     2        4        8                 16                24
//!       kind  aux   region   pe       offset            value             payload ...
//! ```
//!
//! Numbers are little-endian. `pe` is the target. `region` and `offset` say where in its memory.
//!
//! | record | aux | value | payload | counted |
//! |---|---|---|---|---|
//! | hello: the first one in each direction | | version | | |
//! | store: a word | size | the word | | yes |
//! | apply: updates a word, by an operation, without an answer | size, operation | operand | | yes |
//! | put: a block | | bytes | the block | yes |
//! | get | | bytes | | yes |
//! | update: a word, by an operation, with an answer | size, operation | operand | | yes |
//! | compare and swap | size | expected | the new word | yes |
//! | flush: asks for an acknowledgement | | | | |
//! | acknowledgement | | counted records applied so far | | |
//! | data: answers a get | | bytes | the block | |
//! | word: answers an update, or a compare and swap | | what the word held | | |
//! | refused: answers a request that is not allowed (aux 1), or says that a write was not (aux 0) | 0, 1 | | | |
//! | close: nothing follows | | | | |
//!
//! A put with a signal is a put, and then a store or an add. A word of 8 bytes takes 24.
//!
//! # Contract
//!
//! It is that of [`fabric`](memonet_core::unstable::fabric), for the two PEs of a link.
//!
//! * W1 *Order.* The stream keeps the order of bytes. An end applies records one after the other,
//!   each wholly before the next. So all that a PE does to another becomes visible there in the
//!   order of its calls: a fence has nothing to do, and a signal comes after its block. Between
//!   targets a fence promises nothing. A block that the receiver's kernel writes in place is
//!   complete when the call that reads it returns, and applied only then.
//! * W2 *Words.* A store is one store of its size. So is a put of an aligned word.
//! * W3 *Reading never stops.* An end can apply whatever comes, at any time, with bounded memory:
//!   what it has to send because of that is bounded by W8, not by what the peer reads. So a PE that
//!   waits until its own bytes are taken reads and applies meanwhile, and its peer's bytes are
//!   taken. Two PEs that both send, and both wait, therefore both go on: no call blocks in sending
//!   alone.
//! * W4 *Completion.* An end counts the counted records that it has sent; the peer counts those
//!   that it has applied. A flush asks for that count. When it covers all that were sent, all of
//!   them are visible: that is `quiet`. Flushes that come in one read are answered by one
//!   acknowledgement.
//!   A quiet needs those up to the last that is not a notification (W11).
//! * W5 *Answers.* Requests are answered in their order (W1), so an answer belongs to the oldest
//!   request without one, and says that all records before that request have been applied. An
//!   atomic is applied once, as a stream delivers each byte once and a link is never resumed.
//! * W6 *Get and quiet.* A processor may read before its own earlier store is visible to others. So
//!   an end executes a full fence after it has applied records and before it sends what it owes:
//!   a get that follows a quiet reads memory after what that quiet completed is visible to all.
//! * W7 *Checks.* Before a record changes anything, the receiver checks its kind, target, region,
//!   range, size and alignment; an answer must fit its request, and an acknowledgement what was
//!   sent and acknowledged. A record that is wrong is a failure of the link and has written
//!   nothing. Nothing after it is applied.
//! * W8 *Bounds.* Payloads of more than [`COPIED`] bytes are sent from where they lie, and all
//!   payloads are read to where they go. Per link, memory holds at most [`ROOM`] bytes of own
//!   records and one copied payload, [`PIECES`] descriptions of payloads, [`REQUESTS`] requests
//!   without an answer, and, for as many of the peer, an answer each: a header and at most
//!   [`COPIED_ANSWER`] bytes. A peer that asks for more breaks the protocol.
//! * W9 *Sources.* A payload that lies elsewhere is read until the link says that it was
//!   [written](Link::written). For puts, the caller keeps it until then, as `put` and `quiet` do.
//!   The source of an answer is the target's own memory, which stays, as its requester is in a call
//!   (or is gone: then nobody reads what is sent, and the link ends).
//! * W10 *Rights.* A part of a restricted window is reached only while its home has it open, within
//!   its length, and by a PE that has the right. What is not allowed changes nothing and is
//!   refused: a request by its answer, writes by one record for all that came in one read. The
//!   link goes on, as a right may be taken back while its holder uses it.
//!
//! * W11 *Notifications.* They are stores, and blocks before them, that no quiet waits for. By W1
//!   they become visible in the order of calls, and after all that was sent before. They are
//!   counted, so that an acknowledgement that covers what was sent after them says so of them; a
//!   flush that a quiet needs covers them. They keep no state but their number: who notifies after
//!   a long block waits until the block was written (W9).
//!
//! # Which stream
//!
//! Both PEs may ask for a stream at the same time. A PE that asked sends nothing before the other's
//! hello. A PE that is given a stream that the other asked for
//!
//! * S1 uses it, and says hello, if it has not asked itself, or has the higher number;
//! * S2 otherwise keeps it aside until its own is there, or is refused; then it drops it, or uses
//!   it as in S1.
//!
//! The first stream with a hello from its acceptor becomes the link, and there is no second: by S1
//! and S2, when both ask, the higher PE answers the lower one's and drops its own, on which
//! nothing was sent; the lower PE says hello on the other one only if its own was refused. A
//! stream that ends before its hello was never one: whoever asked for it asks again. So does its
//! acceptor, which has heard nothing on it and said nothing but hello: the other end may have
//! given the stream up.

mod apply;
mod inbox;
mod limits;
mod link;
mod outbox;
mod record;

pub use apply::{Came, Home};
pub use inbox::Role;
pub use limits::{COPIED, COPIED_ANSWER, PIECES, REQUESTS, ROOM};
pub use link::{Link, Place, word};
pub use outbox::{Outbox, Piece};
pub use record::{Bad, HEADER, Header, Kind};
