//! Prints the Rust functions that must exist for the C API, by module.

fn main() {
    print!("{}", memonet_shmem_api::signatures());
}
