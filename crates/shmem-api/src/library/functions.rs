//! The exported Rust functions: `pshmem_X` calls the operation that implements it, and the weak
//! `shmem_X` is a second name of `pshmem_X`.

use crate::library::names::{own, profiling};
use crate::near::{FIELDS, LAST, READS_FIELDS};
use crate::table::expand::{Function, functions, rust_result, rust_type};
use crate::table::model::{Constant, Table};
use crate::table::prototype::Parameter;
use crate::version::VENDOR;

/// The source text.
pub fn source(table: &Table) -> String {
    let all = functions(table).expect("a checked table");
    let mut out =
        String::from("// Generated from crates/shmem-api/src/shmem.api.\nuse core::ffi::*;\n\n");
    for constant in &table.constants {
        out += &self::constant(table, constant);
    }
    out += &format!("pub const SHMEM_VENDOR_STRING: &CStr = c\"{}\";\n\n", VENDOR);
    out += &layout(table);
    out += &near_layout();
    for function in &all {
        out += &wrapper(table, function).expect("a checked table");
    }
    let by_reference: Vec<_> = all.iter().filter(|f| is_by_reference(f)).collect();
    if !by_reference.is_empty() {
        out += &format!("#[cfg(target_arch = \"x86_64\")]\n{}", assembly(&by_reference, &X86_64));
        out += &format!("#[cfg(target_arch = \"aarch64\")]\n{}", assembly(&by_reference, &AARCH64));
    }
    out
}

fn constant(table: &Table, constant: &Constant) -> String {
    let Constant { kind, name, value, .. } = constant;
    let kind = &table.type_named(kind).expect("a checked table").rust;
    if constant.is_handle() {
        format!("#[unsafe(no_mangle)]\npub static {name}: {kind} = {kind}({value});\n")
    } else {
        format!("pub const {name}: {kind} = {value};\n")
    }
}

/// Assertions that C and Rust agree on the sizes of types, checked when the library is compiled.
fn layout(table: &Table) -> String {
    let mut out = String::new();
    for s in &table.structs {
        let fields: Vec<_> = s
            .fields
            .iter()
            .map(|(kind, _)| table.rust_of(kind).expect("a checked table"))
            .collect();
        out += &format!(
            "const _: () = {{\n    #[repr(C)]\n    struct Fields({});\n",
            fields.join(", ")
        );
        out += &format!(
            "    assert!(size_of::<{0}>() == size_of::<Fields>() && align_of::<{0}>() == align_of::<Fields>());\n}};\n",
            s.rust
        );
    }
    for t in &table.types {
        if t.opaque {
            out += &format!(
                "const _: () = assert!(size_of::<{0}>() == 16 && align_of::<{0}>() == 16);\n",
                t.rust
            );
        } else if t.c.starts_with("shmem_") {
            out += &format!(
                "const _: () = assert!(size_of::<{}>() == size_of::<*mut c_void>());\n",
                t.rust
            );
        }
    }
    out + "\n"
}

/// Assertions that the objects that the header reads have the layout that the header assumes.
fn near_layout() -> String {
    let mut out = String::from("const _: () = assert!(size_of::<usize>() == 8);\n");
    for (object, fields) in [("Near", FIELDS), ("Reads", READS_FIELDS)] {
        for (place, path) in fields.iter().chain([&LAST]).enumerate() {
            out += &format!(
                "const _: () = assert!(core::mem::offset_of!(crate::state::near::{object}, {path}) == {});\n",
                place * 8
            );
        }
    }
    out + "\n"
}

/// Whether a function takes or returns a value that Rust cannot pass. Then assembly passes the
/// address of the value as the last argument.
fn is_by_reference(function: &Function<'_>) -> bool {
    function.kind.is_some_and(|t| t.opaque)
        && function.template.prototype.types().any(|kind| kind.is_value())
}

/// The name of the function that takes the address of a value.
fn by_reference(name: &str) -> String {
    format!("memonet_{name}_by_reference")
}

/// What an exported function notes of its call.
enum Noted {
    /// That it may wait for other PEs, so that reports of long waits name it; and records it.
    Waiting,
    /// Records it.
    Brief,
    /// Nothing. Its long way notes the call, or it takes no time.
    Nothing,
}

/// What the function that an operation implements notes of its call. A new operation is `Waiting`;
/// the others stand here, as a note takes as long as they do.
fn noted(module: &str, operation: &str) -> Noted {
    let one_of = |some: &[&str]| some.contains(&operation);
    let is_brief = match module {
        "rma" | "amo" | "cache" | "context" | "session" => return Noted::Nothing,
        "lock" if operation != "test" => return Noted::Nothing,
        "order" if operation != "pe_quiet" => return Noted::Nothing,
        "signal" if operation != "wait_until" => return Noted::Nothing,
        "setup" if !one_of(&["init", "init_thread", "finalize"]) => return Noted::Nothing,
        "team" => one_of(&["my_pe", "n_pes", "get_config", "translate_pe", "destroy", "ptr"]),
        "sync" => operation.starts_with("test"),
        "barrier" => one_of(&["test", "try_step", "destroy"]),
        "supersteps" => one_of(&["put", "received"]),
        "transfer" => one_of(&["prepare", "prepare_signal", "start", "test", "free"]),
        "window" => one_of(&["local"]),
        "lock" => true,
        "mutex" => one_of(&["variable", "stats", "try_acquire", "release"]),
        "rwlock" => one_of(&["stats", "release"]) || operation.starts_with("try_"),
        "region" => one_of(&["end", "stats"]),
        "messages" => one_of(&["try_send", "try_recv"]),
        "multicast" => one_of(&["try_receive", "delivery"]),
        _ => false,
    };
    if is_brief { Noted::Brief } else { Noted::Waiting }
}

fn wrapper(table: &Table, function: &Function<'_>) -> Result<String, String> {
    let Function { name, template, kind, operator, explicit } = function;
    let t = kind.map_or("", |t| t.rust.as_str());
    let indirect = is_by_reference(function);
    let returned = indirect && template.prototype.result.is_value();
    let mut parameters = Vec::new();
    let mut arguments = vec![format!("\"{name}\"")];
    for parameter in &template.prototype.parameters {
        match parameter {
            Parameter::Context if *explicit => {
                parameters.push(format!("ctx: {}", table.rust_of("shmem_ctx_t")?));
                arguments.push("ctx".to_owned());
            }
            Parameter::Context => {
                arguments.push(format!("{}::DEFAULT", table.rust_of("shmem_ctx_t")?))
            }
            // The function ignores further arguments, and the caller cleans up. So `...` needs no
            // declaration.
            Parameter::Rest => {}
            Parameter::Named(kind, word) if indirect && kind.is_value() => {
                arguments.push(format!("{word}.read()"))
            }
            Parameter::Named(kind, word) => {
                parameters.push(format!("{word}: {}", rust_type(table, kind, t)?));
                arguments.push(word.clone());
            }
        }
    }
    let value = template.prototype.named().find(|(kind, _)| kind.is_value());
    if returned {
        parameters.push(format!("result: *mut {t}"));
    } else if let (true, Some((_, word))) = (indirect, value) {
        parameters.push(format!("{word}: *const {t}"));
    }
    let result = if returned { String::new() } else { rust_result(table, template, t)? };
    let mut generics: Vec<&str> = Vec::new();
    if template.has_type() {
        generics.push(t);
    }
    if let Some(operator) = operator {
        generics.push(table.operator(operator)?);
    }
    let generics =
        if generics.is_empty() { String::new() } else { format!("::<{}>", generics.join(", ")) };
    let (module, operation) = &template.implementation;
    let call = format!("crate::calls::{module}::{operation}{generics}({})", arguments.join(", "));
    let call = if returned { format!("result.write({call})") } else { call };
    let noted = match noted(module, operation) {
        Noted::Waiting => format!("let _call = crate::state::record::call(\"{name}\"); "),
        Noted::Brief => format!("let _call = crate::state::record::brief(\"{name}\"); "),
        Noted::Nothing => String::new(),
    };
    let symbol = if indirect { by_reference(name) } else { profiling(name) };
    // Where assembly passes the values on, it also defines the names.
    let names = if indirect {
        String::new()
    } else {
        let mut names = weak(name).to_vec();
        if template.inline {
            names.extend(own_alias(name));
        }
        format!(
            "    unsafe {{ core::arch::asm!(\"{}\", options(nomem, nostack, preserves_flags)) }};\n",
            names.join("\", \"")
        )
    };
    Ok(format!(
        "#[inline(never)]\n#[unsafe(no_mangle)]\n#[unsafe(link_section = \"memonet_calls\")]\npub unsafe extern \"C\" fn {symbol}({}){result} {{\n{names}    unsafe {{ {noted}{call} }}\n}}\n",
        parameters.join(", ")
    ))
}

/// Assembly that makes `name` a weak second name of the function: a call of it costs no jump, and a
/// profiling tool may define it. An alias must be in the object file of its function, which may be
/// any object file. So the assembly stands inside the function, which is never inlined.
fn weak(name: &str) -> [String; 3] {
    [
        format!(".weak {name}"),
        format!(".type {name}, %function"),
        format!(".set {name}, {}", profiling(name)),
    ]
}

/// Assembly that defines the library's own name of a function. The name is hidden, so that the
/// loader need not search for it.
fn own_alias(name: &str) -> [String; 3] {
    let own = own(name);
    [format!(".globl {own}"), format!(".hidden {own}"), format!(".set {own}, {}", profiling(name))]
}

/// The way in which an architecture passes a `long double`.
struct Machine {
    registers: [&'static str; 6],
    /// The body of a function that takes one: `REG` becomes its address.
    takes: &'static str,
    /// The body of a function that returns one.
    returns: &'static str,
}

// A `long double` argument is on the stack, above the return address. A `long double` result is on
// the stack of the x87.
const X86_64: Machine = Machine {
    registers: ["rdi", "rsi", "rdx", "rcx", "r8", "r9"],
    takes: "    lea REG, [rsp + 8]\n    jmp CALLEE@PLT\n",
    returns: "    sub rsp, 24\n    .cfi_adjust_cfa_offset 24\n    mov REG, rsp\n    call CALLEE@PLT\n    fld tbyte ptr [rsp]\n    \
              add rsp, 24\n    .cfi_adjust_cfa_offset -24\n    ret\n",
};

// A `long double` is passed and returned in q0.
const AARCH64: Machine = Machine {
    registers: ["x0", "x1", "x2", "x3", "x4", "x5"],
    takes: "    stp x29, x30, [sp, #-32]!\n    .cfi_adjust_cfa_offset 32\n    .cfi_rel_offset x29, 0\n    .cfi_rel_offset x30, 8\n    \
            str q0, [sp, #16]\n    add REG, sp, #16\n    bl CALLEE\n    \
            ldp x29, x30, [sp], #32\n    .cfi_adjust_cfa_offset -32\n    ret\n",
    returns: "    stp x29, x30, [sp, #-32]!\n    .cfi_adjust_cfa_offset 32\n    .cfi_rel_offset x29, 0\n    .cfi_rel_offset x30, 8\n    \
              add REG, sp, #16\n    bl CALLEE\n    ldr q0, [sp, #16]\n    \
              ldp x29, x30, [sp], #32\n    .cfi_adjust_cfa_offset -32\n    ret\n",
};

/// The functions that take or return a value that Rust cannot pass.
fn assembly(functions: &[&Function<'_>], machine: &Machine) -> String {
    let mut out = String::from("core::arch::global_asm!(\n    r#\"\n");
    for function in functions {
        let prototype = &function.template.prototype;
        let others = prototype.named().filter(|(kind, _)| !kind.is_value()).count();
        let register = machine.registers[others + usize::from(function.explicit)];
        let body = if prototype.result.is_value() { machine.returns } else { machine.takes };
        let body = body.replace("REG", register).replace("CALLEE", &by_reference(&function.name));
        let name = profiling(&function.name);
        out += &format!(
            ".pushsection .text.{name}, \"ax\", %progbits\n.p2align 4\n.globl {name}\n.type {name}, %function\n"
        );
        out += &format!(
            "{name}:\n    .cfi_startproc\n{body}    .cfi_endproc\n.size {name}, . - {name}\n.popsection\n"
        );
        out += &format!("{}\n", weak(&function.name).join("\n"));
    }
    out + "\"#\n);\n"
}
