//! The handshake of two agents before a stream, without input and output.
//!
//! ```text
//! node a, for its PE p                            node b, for its PE q
//!   hello     fields, fresh number A, tag    ──►
//!                                            ◄──  challenge  fresh number B, tag
//!   proof     tag                            ──►
//!                                            ◄──  answer     code, tag
//! ```
//!
//! The fields are magic, version, job, both nodes and both PEs. A tag is HMAC-SHA256, keyed with
//! the job's secret, of a label for its kind of message and of all that was said before it. All
//! messages have a fixed size, so that different transcripts are different bytes. The steps of the
//! proof, at the head of [`agent`](super), have their numbers at the lines that uphold them.

use super::secret::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::sync::Arc;

/// Version of the handshake and of the streams that follow it.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"memonet\0";
const TAG: usize = 32;
const NONCE: usize = 32;
const FIELDS: usize = 44;
const HELLO: usize = FIELDS + NONCE + TAG;
const CHALLENGE: usize = NONCE + TAG;
const PROOF: usize = TAG;
const ANSWER: usize = 4 + TAG;

/// A random number for one handshake.
pub type Nonce = [u8; NONCE];

/// Labels of tags. All have one length.
mod label {
    pub(super) const HELLO: &[u8; 20] = b"memonet tcp hello  1";
    pub(super) const CHALLENGE: &[u8; 20] = b"memonet tcp challeng";
    pub(super) const PROOF: &[u8; 20] = b"memonet tcp proof  1";
    pub(super) const ANSWER: &[u8; 20] = b"memonet tcp answer 1";
}

/// The two ends of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The node that connects.
    pub from_node: u32,
    /// The node that accepts.
    pub to_node: u32,
    /// The PE that asked for the stream.
    pub from_pe: u32,
    /// The PE that it asked for.
    pub to_pe: u32,
}

/// What the accepting node says in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The PE gets the socket.
    Taken,
    /// The PE has left the job.
    Departed,
    /// Too many sockets wait for the PE already.
    Full,
}

impl Answer {
    const ALL: [Answer; 3] = [Answer::Taken, Answer::Departed, Answer::Full];
}

/// Why a handshake ends without a stream.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum Refused {
    /// Something else speaks there.
    #[error("what came is not of memonet")]
    Stranger,
    /// Another version.
    #[error("the other end has version {0} of the handshake, and this one {VERSION}")]
    Version(u32),
    /// Another job.
    #[error("the other end belongs to another job")]
    Job,
    /// A tag that is not right.
    #[error("the other end has not proved that it knows the job's secret")]
    Unproved,
    /// Nodes or PEs that do not fit together, or a stream that is not for this node.
    #[error("the stream is not for a PE of this node, or from none of the node it names")]
    Misdirected,
    /// More bytes than this step takes, or bytes after the end.
    #[error("bytes came that no step of the handshake takes")]
    OutOfStep,
}

/// What follows from bytes that have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// More bytes are missing.
    More,
    /// These bytes go to the other end.
    Send(Vec<u8>),
    /// The other end has proved itself and asks for this stream: [`Accepting::answer`] it.
    Asked(Link),
    /// The other end has proved itself, and this is what it says.
    Answered(Answer),
}

/// A member of a job, as it takes part in handshakes.
#[derive(Clone)]
pub struct Member {
    key: Hmac<Sha256>,
    job: [u8; 16],
    node: u32,
    node_of: Arc<[u32]>,
}

impl Member {
    /// The agent of a node.
    pub fn new(secret: &Secret, job: [u8; 16], node: u32, node_of: &[u32]) -> Self {
        let key = Hmac::new_from_slice(secret.bytes()).expect("HMAC takes keys of any length");
        Member { key, job, node, node_of: node_of.into() }
    }

    /// Step 1.
    fn keyed(&self, label: &[u8; 20], said: &[&[u8]]) -> Hmac<Sha256> {
        let mut key = self.key.clone();
        key.update(label);
        said.iter().for_each(|part| key.update(part));
        key
    }

    fn tag(&self, label: &[u8; 20], said: &[&[u8]]) -> [u8; TAG] {
        self.keyed(label, said).finalize().into_bytes().into()
    }

    /// Compares in a time that does not depend on the tags.
    fn verify(&self, label: &[u8; 20], said: &[&[u8]], tag: &[u8]) -> Result<(), Refused> {
        self.keyed(label, said).verify_slice(tag).map_err(|_| Refused::Unproved)
    }

    fn fields(&self, link: &Link) -> [u8; FIELDS] {
        let Link { from_node, to_node, from_pe, to_pe } = *link;
        let mut bytes = [0; FIELDS];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..28].copy_from_slice(&self.job);
        let numbers = [VERSION, from_node, to_node, from_pe, to_pe];
        for (number, at) in numbers.into_iter().zip([8, 28, 32, 36, 40]) {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// What a hello asks for, if it is of this job and for this node.
    fn read_hello(&self, hello: &[u8; HELLO]) -> Result<Link, Refused> {
        let number =
            |at: usize| u32::from_le_bytes(hello[at..at + 4].try_into().expect("four bytes"));
        if hello[..8] != MAGIC {
            return Err(Refused::Stranger);
        }
        if number(8) != VERSION {
            return Err(Refused::Version(number(8)));
        }
        if hello[12..28] != self.job {
            return Err(Refused::Job);
        }
        let (said, tag) = hello.split_at(FIELDS + NONCE);
        self.verify(label::HELLO, &[said], tag)?;
        let [from_node, to_node, from_pe, to_pe] = [28, 32, 36, 40].map(number);
        let is_on = |pe: u32, node| self.node_of.get(pe as usize) == Some(&node);
        // Step 4.
        let fits = to_node == self.node
            && from_node != self.node
            && is_on(from_pe, from_node)
            && is_on(to_pe, to_node);
        if !fits {
            return Err(Refused::Misdirected);
        }
        Ok(Link { from_node, to_node, from_pe, to_pe })
    }
}

/// The bytes of the message that is due: never more than that are held.
#[derive(Clone)]
struct Input {
    bytes: [u8; HELLO],
    filled: usize,
}

impl Input {
    const EMPTY: Input = Input { bytes: [0; HELLO], filled: 0 };

    /// Adds bytes; gives a message of `N` bytes once it is whole.
    fn take<const N: usize>(&mut self, bytes: &[u8]) -> Result<Option<[u8; N]>, Refused> {
        let end = self.filled + bytes.len();
        // Step 5.
        if end > N {
            return Err(Refused::OutOfStep);
        }
        self.bytes[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
        if end < N {
            return Ok(None);
        }
        self.filled = 0;
        Ok(Some(*self.bytes.first_chunk().expect("no message is longer than a hello")))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Hello,
    Challenge,
    Proof,
    Answer,
    Nothing,
}

impl Due {
    fn bytes(self) -> usize {
        match self {
            Due::Hello => HELLO,
            Due::Challenge => CHALLENGE,
            Due::Proof => PROOF,
            Due::Answer => ANSWER,
            Due::Nothing => 0,
        }
    }
}

/// The end that connects.
#[derive(Clone)]
pub struct Connecting {
    said: [u8; FIELDS + NONCE],
    theirs: Nonce,
    due: Due,
    input: Input,
}

impl Connecting {
    /// Begins, with the hello to send.
    pub fn new(member: &Member, link: &Link, nonce: &Nonce) -> (Self, Vec<u8>) {
        let mut said = [0; FIELDS + NONCE];
        said[..FIELDS].copy_from_slice(&member.fields(link));
        said[FIELDS..].copy_from_slice(nonce);
        let hello = [&said[..], &member.tag(label::HELLO, &[&said])].concat();
        let connecting =
            Connecting { said, theirs: [0; NONCE], due: Due::Challenge, input: Input::EMPTY };
        (connecting, hello)
    }

    /// How many bytes to read: none beyond them belongs to the handshake.
    pub fn missing(&self) -> usize {
        self.due.bytes() - self.input.filled
    }

    /// Takes bytes of the other end. After an error nothing more is taken.
    pub fn receive(&mut self, member: &Member, bytes: &[u8]) -> Result<Step, Refused> {
        self.step(member, bytes).inspect_err(|_| self.due = Due::Nothing)
    }

    fn step(&mut self, member: &Member, bytes: &[u8]) -> Result<Step, Refused> {
        match self.due {
            Due::Challenge => {
                let Some(message) = self.input.take::<CHALLENGE>(bytes)? else {
                    return Ok(Step::More);
                };
                let (theirs, tag) = message.split_at(NONCE);
                // Step 2.
                member.verify(label::CHALLENGE, &[&self.said, theirs], tag)?;
                self.theirs.copy_from_slice(theirs);
                self.due = Due::Answer;
                let proof = member.tag(label::PROOF, &[&self.said, &self.theirs]);
                Ok(Step::Send(proof.to_vec()))
            }
            Due::Answer => {
                let Some(message) = self.input.take::<ANSWER>(bytes)? else {
                    return Ok(Step::More);
                };
                let (code, tag) = message.split_at(4);
                member.verify(label::ANSWER, &[&self.said, &self.theirs, code], tag)?;
                self.due = Due::Nothing;
                let answer = Answer::ALL.into_iter().find(|&answer| code == encode(answer));
                answer.map(Step::Answered).ok_or(Refused::OutOfStep)
            }
            Due::Hello | Due::Proof | Due::Nothing => Err(Refused::OutOfStep),
        }
    }
}

/// The end that accepts.
#[derive(Clone)]
pub struct Accepting {
    said: [u8; FIELDS + NONCE],
    ours: Nonce,
    link: Option<Link>,
    due: Due,
    input: Input,
}

impl Accepting {
    /// Begins; a hello is due.
    pub fn new(nonce: &Nonce) -> Self {
        let said = [0; FIELDS + NONCE];
        Accepting { said, ours: *nonce, link: None, due: Due::Hello, input: Input::EMPTY }
    }

    /// How many bytes to read: none beyond them belongs to the handshake.
    pub fn missing(&self) -> usize {
        self.due.bytes() - self.input.filled
    }

    /// Whether a hello with a right tag has come: of the job, or replayed.
    pub fn has_heard(&self) -> bool {
        self.link.is_some()
    }

    /// Takes bytes of the other end. After an error nothing more is taken.
    pub fn receive(&mut self, member: &Member, bytes: &[u8]) -> Result<Step, Refused> {
        self.step(member, bytes).inspect_err(|_| self.due = Due::Nothing)
    }

    fn step(&mut self, member: &Member, bytes: &[u8]) -> Result<Step, Refused> {
        match (self.due, self.link) {
            (Due::Hello, _) => {
                let Some(hello) = self.input.take::<HELLO>(bytes)? else {
                    return Ok(Step::More);
                };
                self.link = Some(member.read_hello(&hello)?);
                self.said.copy_from_slice(&hello[..FIELDS + NONCE]);
                self.due = Due::Proof;
                let tag = member.tag(label::CHALLENGE, &[&self.said, &self.ours]);
                Ok(Step::Send([&self.ours[..], &tag].concat()))
            }
            (Due::Proof, Some(link)) => {
                let Some(proof) = self.input.take::<PROOF>(bytes)? else {
                    return Ok(Step::More);
                };
                // Step 3.
                member.verify(label::PROOF, &[&self.said, &self.ours], &proof)?;
                self.due = Due::Nothing;
                Ok(Step::Asked(link))
            }
            _ => Err(Refused::OutOfStep),
        }
    }

    /// What to send to an end that has [asked](Step::Asked).
    pub fn answer(&self, member: &Member, answer: Answer) -> Vec<u8> {
        let code = encode(answer);
        let tag = member.tag(label::ANSWER, &[&self.said, &self.ours, &code]);
        [&code[..], &tag].concat()
    }
}

fn encode(answer: Answer) -> [u8; 4] {
    let code: u32 = match answer {
        Answer::Taken => 1,
        Answer::Departed => 2,
        Answer::Full => 3,
    };
    code.to_le_bytes()
}

#[cfg(test)]
mod tests;
