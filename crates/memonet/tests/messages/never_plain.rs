use memonet::plain;

#[plain]
struct Named {
    name: String,
    next: u64,
}

#[plain]
struct Flags {
    count: u32,
    on: [bool; 4],
}

#[plain]
struct Listed(Vec<u8>, u64);

#[plain]
enum Kind {
    This,
    That,
}

#[derive(memonet::Plain)]
struct Derived(u64);

fn main() {}
