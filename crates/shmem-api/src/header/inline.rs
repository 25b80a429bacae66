//! Transfers of a word to or from near PEs without a call: functions that the compiler inlines.
//!
//! A call of a library function takes longer than the store that the function makes. So the header
//! has a second definition of some functions (`inline` in the table), as libc has for its fortified
//! functions. The compiler uses it only where it inlines it. It does the work of the library's
//! `near::word`, with the object that `near::word` reads (`memonet_near_1`), and calls the function
//! for everything else. The library's `Near` has the proof that both do the same.

use crate::header::c::{by_class, c_name, macro_over, pasted, section};
use crate::near::{FIELDS, LAST, OBJECT, PES, READS, READS_FIELDS};
use crate::table::model::{Over, Table, Template};
use crate::table::shape::Shape;

impl Shape {
    /// The body of an inlined function, which does its work or evaluates `call`.
    fn body(self, t: &str, size: &str, ctx: &str, call: &str) -> String {
        match self {
            Shape::Store => format!("{{ MEMONET_STORE({ctx}, {call}) }}"),
            Shape::Load => format!("{{ {t} value; MEMONET_LOAD({ctx}, {call}) return value; }}"),
            Shape::Put => format!("{{ MEMONET_PUT({ctx}, {size}, {call}) }}"),
            Shape::Get => format!("{{ MEMONET_GET({ctx}, {size}, {call}) }}"),
        }
    }
}

/// The condition under which the compiler inlines functions.
pub const CONDITION: &str = "\
#if defined(__GNUC__) && defined(__x86_64__) && defined(__LP64__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__) && \\
    !defined(__NO_INLINE__) && !defined(SHMEMX_NO_INLINE)
#define MEMONET_INLINE extern __inline__ __attribute__((__gnu_inline__, __always_inline__, __artificial__))
#define MEMONET_OVERLOAD_INLINE __attribute__((__always_inline__))
#else
#define MEMONET_OVERLOAD_INLINE
#endif
";

/// The pieces of the bodies. Inside an inlined definition, Clang takes a call of the function for a
/// call of the definition, unless the symbol has another spelling.
const TOOLS: &str = "
#ifdef __clang__
#define MEMONET_FUNCTION(name) __asm__(\"\\01\" name)
#else
#define MEMONET_FUNCTION(name) __asm__(name)
#endif

/* Finds where a word of a near PE is mapped. Where PEs share CPUs, the function must do some of the reads. */
MEMONET_INLINE int memonet_find(shmem_ctx_t ctx, const void *address, int pe, int reads, void **there) {
    const size_t pes = sizeof memonet_near_1.apart / sizeof memonet_near_1.apart[0];
    size_t at = (size_t)address, apart;
    if (ctx != SHMEM_CTX_DEFAULT || __builtin_expect((unsigned)pe >= pes, 0)) return 0;
    apart = (reads ? memonet_reads_1.apart : memonet_near_1.apart)[(unsigned)pe];
    if (__builtin_expect((apart & 1) == 0, 0)) {
        if (!reads || apart == 0 || (long)--memonet_reads_1.left <= 0) return 0;
        apart--;
    }
    if (__builtin_expect(at - memonet_near_1.heap_start > memonet_near_1.heap_words, 0)) {
        if (at - memonet_near_1.statics_start > memonet_near_1.statics_words) return 0;
        apart += memonet_near_1.statics_bias - memonet_near_1.heap_bias;
    }
    *there = (void *)(at + apart - 1);
    return 1;
}

/* One instruction that the compiler cannot see into: it tears, merges or drops no access, and moves none across it. */
#define MEMONET_WORD(BITS) \\
    typedef uint##BITS##_t __attribute__((__may_alias__, __aligned__(1))) memonet_word##BITS; \\
    MEMONET_INLINE void memonet_store##BITS(void *to, const void *from) { \\
        uint##BITS##_t word; \\
        __builtin_memcpy(&word, from, sizeof word); \\
        __asm__ __volatile__(\"mov {%1, %0|%0, %1}\" : \"=m\"(*(memonet_word##BITS *)to) : \"r\"(word) : \"memory\"); \\
    } \\
    MEMONET_INLINE void memonet_load##BITS(void *to, const void *from) { \\
        uint##BITS##_t word; \\
        __asm__ __volatile__(\"mov {%1, %0|%0, %1}\" : \"=r\"(word) : \"m\"(*(const memonet_word##BITS *)from) : \"memory\"); \\
        __builtin_memcpy(to, &word, sizeof word); \\
    }
MEMONET_WORD(8)
MEMONET_WORD(16)
MEMONET_WORD(32)
MEMONET_WORD(64)
#undef MEMONET_WORD

MEMONET_INLINE void memonet_load(void *to, const void *from, size_t bytes) {
    switch (bytes) {
    case 1: memonet_load8(to, from); break;
    case 2: memonet_load16(to, from); break;
    case 4: memonet_load32(to, from); break;
    default: memonet_load64(to, from);
    }
}

/* The marks say that the PE was written: it may sleep, and the next wait of this PE must wake it. */
MEMONET_INLINE void memonet_store(void *to, const void *from, size_t bytes, int pe) {
    unsigned char *written = (unsigned char *)memonet_near_1.written;
    switch (bytes) {
    case 1: memonet_store8(to, from); break;
    case 2: memonet_store16(to, from); break;
    case 4: memonet_store32(to, from); break;
    default: memonet_store64(to, from);
    }
    __atomic_store_n(written + 1 + (unsigned)pe, 1, __ATOMIC_RELEASE);
    __atomic_store_n(written, 1, __ATOMIC_RELEASE);
}

#define MEMONET_IS_WORD(bytes) ((bytes) == 1 || (bytes) == 2 || (bytes) == 4 || (bytes) == 8)
#define MEMONET_ARE_WORD(size) (__builtin_constant_p(nelems) && nelems <= 8 && MEMONET_IS_WORD(nelems * (size)))
#define MEMONET_STORE(CTX, CALL) \\
    void *to; \\
    if (MEMONET_IS_WORD(sizeof value) && memonet_find(CTX, dest, pe, 0, &to)) memonet_store(to, &value, sizeof value, pe); \\
    else CALL;
#define MEMONET_LOAD(CTX, CALL) \\
    void *from; \\
    if (MEMONET_IS_WORD(sizeof value) && memonet_find(CTX, source, pe, 1, &from)) memonet_load(&value, from, sizeof value); \\
    else value = CALL;
#define MEMONET_PUT(CTX, SIZE, CALL) \\
    void *to; \\
    if (MEMONET_ARE_WORD(SIZE) && memonet_find(CTX, dest, pe, 0, &to)) memonet_store(to, source, nelems * (SIZE), pe); \\
    else CALL;
#define MEMONET_GET(CTX, SIZE, CALL) \\
    void *from; \\
    if (MEMONET_ARE_WORD(SIZE) && memonet_find(CTX, source, pe, 1, &from)) memonet_load(dest, from, nelems * (SIZE)); \\
    else CALL;

";

/// The definitions of the inlined functions.
pub fn definitions(table: &Table) -> String {
    let mut out = section(
        "Transfers of one word to or from near PEs without a call; the function does everything else. Units that define \
         SHMEMX_NO_INLINE\n   inline nothing, and neither do programs in which a tool replaces such a function. Names that begin with memonet_ are internal",
    );
    out += "#ifdef MEMONET_INLINE\n";
    let fields: Vec<_> = FIELDS.iter().map(|path| path.replace('.', "_")).collect();
    for (kind, fields, object) in
        [("near", fields.join(", "), OBJECT), ("reads", READS_FIELDS.join(", "), READS)]
    {
        out += &format!(
            "extern struct memonet_{kind} {{\n    size_t {fields}, {LAST}[{PES}];\n}} {object} __attribute__((__visibility__(\"default\")));\n"
        );
    }
    out += TOOLS;
    let templates: Vec<_> = table.templates().filter(|template| template.inline).collect();
    for (class, rows) in by_class(table, &templates) {
        let first = table.types_of(&Over::Class(class.clone()))[0];
        let size = if first.c == "void" { "N / 8" } else { "sizeof(T)" };
        let t = if first.c == "void" { "void" } else { "T" };
        let mut lines = Vec::new();
        for (template, operator) in rows {
            for explicit in template.forms() {
                let name = pasted(template, operator.as_deref(), explicit, "");
                let string = format!(
                    "\"{}\"",
                    template.function(Some("\" #N \""), operator.as_deref(), explicit)
                );
                lines.extend(definition(template, &name, &string, t, size, explicit));
            }
        }
        out += &macro_over(table, &class, "MEMONET_DEFINE", &lines, false);
    }
    for template in templates {
        for (_, over) in table.groups(template).expect("a checked table") {
            let Over::Type(place) = over else { continue };
            let kind = &table.types[place];
            for explicit in template.forms() {
                let name = template.function(Some(&kind.name), None, explicit);
                let lines = definition(
                    template,
                    &name,
                    &format!("\"{name}\""),
                    &c_name(kind),
                    "1",
                    explicit,
                );
                out += &(lines.join("\n") + "\n");
            }
        }
    }
    out + "#endif /* MEMONET_INLINE */\n"
}

/// The declaration of a function under another name, and its inlined definition.
fn definition(
    template: &Template,
    name: &str,
    string: &str,
    t: &str,
    size: &str,
    explicit: bool,
) -> [String; 2] {
    let prototype = &template.prototype;
    let (result, parameters) =
        (prototype.result.before_name(t), prototype.c_parameters(t, explicit));
    let call = format!("memonet_{name}({})", prototype.arguments(explicit));
    let ctx = if explicit { "ctx" } else { "SHMEM_CTX_DEFAULT" };
    let body = Shape::of(template).expect("a checked table").body(t, size, ctx, &call);
    [
        format!("MEMONET_DIRECT {result}memonet_{name}({parameters}) MEMONET_FUNCTION({string});"),
        format!("MEMONET_INLINE {result}{name}({parameters}) {body}"),
    ]
}
