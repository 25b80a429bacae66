//! Static data as symmetric objects, however the program is linked.

use std::path::{Path, PathBuf};

use crate::common::{
    assert_success, command, complaint, folder, has, installed, job, lines, printed, source,
};

/// Every way to link a program that treats its data differently.
pub const WAYS: &[&[&str]] = &[
    &["-pie", "-fPIE"],
    &["-no-pie", "-fno-pie"],
    &["-static"],
    &["-static-pie", "-fPIE"],
    &["-flto", "-O2"],
    &["-flto", "-O2", "-static"],
    &["-Wl,-z,norelro"],
    &["-Wl,-z,relro,-z,now"],
];

fn compiled(folder: &Path, wrapper: &str, options: &[&str], text: &str) -> PathBuf {
    let program = folder.join("program");
    let mut compile = installed(wrapper);
    printed(compile.args(["-Wall", "-O1", "-o"]).arg(&program).args(options).arg(source(text)));
    program
}

fn each_in_turn(text: &str) -> [String; 3] {
    [0, 1, 2].map(|pe| text.replace('#', &pe.to_string()))
}

#[test]
fn of_c_programs() {
    let folder = folder();
    for way in WAYS {
        let program = compiled(folder.path(), "oshcc", way, "statics.c");
        assert_eq!(lines(3, &program), each_in_turn("PE # of 3"), "{way:?}");
    }
}

#[test]
fn of_cxx_programs() {
    let folder = folder();
    for way in WAYS {
        let program = compiled(folder.path(), "oshc++", way, "statics.cpp");
        assert_eq!(lines(3, &program), each_in_turn("PE # right"), "{way:?}");
    }
}

#[test]
fn far_away() {
    let folder = folder();
    for way in [&["-no-pie"][..], &["-pie", "-fPIE"]] {
        let program = compiled(folder.path(), "oshcc", way, "statics.c");
        let output =
            printed(&mut job(3, &["--fabric", "far:delay_us=20,reorder=1"], &program, &[]));
        assert_eq!(output.lines().count(), 3, "{way:?}: {output}");
    }
}

/// The fabric has a thread.
#[test]
fn a_static_program_with_threads_is_refused_its_fork() {
    let folder = folder();
    let program = compiled(folder.path(), "oshcc", &["-static"], "statics.c");
    let text = complaint(&mut job(2, &["--fabric", "far:delay_us=20,reorder=1"], &program, &[]));
    assert!(text.contains("cannot fork") && text.contains("link it dynamically"), "{text}");
}

#[test]
fn under_valgrind() {
    if has("valgrind") {
        let folder = folder();
        let program = compiled(folder.path(), "oshcc", &[], "hello.c");
        let program = program.to_str().expect("a path that is text");
        let output = assert_success(&mut job(
            2,
            &[],
            "valgrind".as_ref(),
            &["-q", "--error-exitcode=9", program],
        ));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().filter(|line| line.contains(" of 2: ")).count(), 2, "{text}");
    }
}

/// If there is no room for all static data, a child still gets a copy of the shared part.
#[test]
fn children_are_apart_where_not_all_is_shared() {
    const TEXT: &str = "#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n#include <shmem.h>\n\
        int mine = 1;\nint main(int argc, char **argv) {\n    (void)argv;\n    pid_t child = fork();\n\
        if (child == 0) {\n        mine = 2;\n        _exit(0);\n    }\n    waitpid(child, NULL, 0);\n    printf(\"%d\\n\", mine);\n\
        fflush(stdout);\n    if (argc > 1) shmem_init();\n    return 0;\n}\n";
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("much.c"), "char much[64 << 20];\n").unwrap();
    std::fs::write(at("user.c"), TEXT).unwrap();
    printed(
        installed("oshcc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&at("libmuch.so"), &at("much.c")]),
    );
    let mut compile = installed("oshcc");
    compile.arg("-o").args([at("user"), at("user.c")]).arg("-Wl,--no-as-needed");
    printed(compile.arg(at("libmuch.so")));
    let little =
        ["--env", "MEMONET_SYMMETRIC_LIBS=libmuch.so", "--env", "MEMONET_SEGMENT_SIZE=64M"];
    assert_eq!(printed(&mut job(2, &little, &at("user"), &[])), "1\n1\n");
    let why = complaint(&mut job(2, &little, &at("user"), &["init"]));
    assert!(why.contains("shmem_init: "), "{why}");
}

/// A process has so many mappings that the copy can be made, and not be moved.
#[test]
fn a_child_without_its_copy_ends() {
    const TEXT: &str = "#include <stdio.h>\n#include <sys/mman.h>\n#include <sys/wait.h>\n#include <unistd.h>\n#include <shmem.h>\n\
        int mine = 1;\nint main(void) {\n    shmem_init();\n    char *page, *last = NULL, *before = NULL;\n    int way = 0, status;\n\
        while ((page = mmap(NULL, 4096, way++ % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED)\n\
            before = last, last = page;\n    munmap(last, 4096);\n    munmap(before, 4096);\n\
        pid_t child = fork();\n    if (child == 0) {\n        mine = 2;\n        _exit(0);\n    }\n\
        waitpid(child, &status, 0);\n    printf(\"%d %d\\n\", WEXITSTATUS(status), mine);\n    fflush(stdout);\n    _exit(0);\n}\n";
    let folder = folder();
    let (text, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&text, TEXT).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &text]));
    let output = crate::common::command(&program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 1\n", "{said}");
    assert!(said.contains("fork: the child cannot have its own copy"), "{said}");
}

#[test]
fn without_a_launcher() {
    let folder = folder();
    for way in WAYS {
        let program = compiled(folder.path(), "oshcc", way, "statics.c");
        assert_eq!(printed(&mut crate::common::command(&program)), "PE 0 of 1\n", "{way:?}");
    }
}

#[test]
fn a_child_that_initialises_has_none() {
    const TEXT: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n#include <shmem.h>\n\
        static long mine = 1;\nint main(int argc, char **argv) {\n    const char *pe = getenv(\"MEMONET_PE\");\n    int status;\n\
        if (pe == NULL || *pe == '0') {\n        pid_t child = fork();\n        if (child > 0) return waitpid(child, &status, 0), status != 0;\n    }\n\
        shmem_init();\n    long *word = argc > 1 ? &mine : shmem_calloc(1, sizeof(long));\n    (void)argv;\n\
        shmem_long_atomic_inc(word, shmem_n_pes() - 1 - shmem_my_pe());\n    shmem_barrier_all();\n    printf(\"%ld\\n\", *word);\n\
        shmem_finalize();\n    return 0;\n}\n";
    let folder = folder();
    let [file, program] = ["child.c", "child"].map(|name| folder.path().join(name));
    std::fs::write(&file, TEXT).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &file]));
    assert_eq!(printed(&mut job(2, &[], &program, &[])), "1\n1\n");
    let text = complaint(&mut job(2, &["--keep-going"], &program, &["static"]));
    assert!(
        text.contains("has private copies") || text.contains("is a child of the process"),
        "{text}"
    );
    assert!(
        complaint(&mut job(1, &[], &program, &["static"]))
            .contains("is a child of the process that joined the job, and has private copies")
    );
}

/// As those of MPI's library do, where it is initialised first. Another launcher may have started a
/// single process, too.
#[test]
fn with_threads_that_were_there_before() {
    const TEXT: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <shmem.h>\n\
        static long mine = 1;\nstatic void *rest(void *none) {\n    pause();\n    return none;\n}\n\
        int main(void) {\n    pthread_t thread;\n    pthread_create(&thread, NULL, rest, NULL);\n    shmem_init();\n\
        shmem_long_atomic_inc(&mine, 0);\n    printf(\"%ld\\n\", mine);\n    shmem_finalize();\n    return 0;\n}\n";
    let folder = folder();
    let [file, program] = ["threads.c", "threads"].map(|name| folder.path().join(name));
    std::fs::write(&file, TEXT).unwrap();
    printed(installed("oshcc").args(["-pthread", "-o"]).args([&program, &file]));
    assert_eq!(printed(&mut job(1, &[], &program, &[])), "2\n");
    let of_mpirun = ["SIZE", "LOCAL_SIZE", "RANK"].map(|what| format!("OMPI_COMM_WORLD_{what}"));
    let launched = of_mpirun.iter().zip(["1", "1", "0"]);
    assert_eq!(printed(command(&program).envs(launched)), "2\n");
    let text = complaint(&mut command(&program));
    assert!(text.contains("without a launcher (`oshrun -n 1` is one)"), "{text}");
}

/// As an interpreter does, whose variables are not the user's.
#[test]
fn a_program_that_loads_the_library_keeps_its_data() {
    const TEXT: &str = "#include <dlfcn.h>\n#include <stdio.h>\nstatic long mine = 1;\n\
        int main(int argc, char **argv) {\n    void *library = dlopen(argv[argc - 1], RTLD_NOW);\n\
        ((void (*)(void))dlsym(library, \"shmem_init\"))();\n\
        int (*accessible)(const void *, int) = (int (*)(const void *, int))dlsym(library, \"shmem_addr_accessible\");\n\
        void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, \"shmem_malloc\");\n\
        printf(\"%d %d\\n\", accessible(&mine, 0), accessible(allocate(8), 0));\n\
        ((void (*)(void))dlsym(library, \"shmem_finalize\"))();\n    return 0;\n}\n";
    let folder = folder();
    let [file, program] = ["loads.c", "loads"].map(|name| folder.path().join(name));
    std::fs::write(&file, TEXT).unwrap();
    printed(std::process::Command::new("cc").arg("-o").args([&program, &file]).arg("-ldl"));
    let library = crate::common::PREFIX.join("lib/libmemonet.so").display().to_string();
    assert_eq!(printed(&mut job(2, &[], &program, &[&library])), "0 1\n0 1\n");
}

#[test]
fn memory_that_is_not_symmetric_is_refused() {
    let folder = folder();
    for way in [&["-pie", "-fPIE"][..], &["-static"]] {
        let program = compiled(folder.path(), "oshcc", way, "statics.c");
        for (what, call) in
            [("stack", "shmem_int_p: dest: 4 bytes"), ("malloc", "shmem_int_get: source: 4 bytes")]
        {
            let why = complaint(&mut job(2, &[], &program, &[what]));
            assert!(
                why.contains(call) && why.contains("are not symmetric: use memory of shmem_malloc"),
                "{way:?}: {why}"
            );
        }
    }
}

const LIBRARY: &str = "int in_library = 5;\nint *thing(void) { return &in_library; }\n";

const USER: &str = "#include <shmem.h>\n#include <stdio.h>\nint *thing(void);\nint main(void) {\n    shmem_init();\n\
    int me = shmem_my_pe(), n = shmem_n_pes();\n    printf(\"%d\\n\", shmem_addr_accessible(thing(), 0));\n    fflush(stdout);\n\
    shmem_int_p(thing(), 10 + me, (me + 1) % n);\n    shmem_barrier_all();\n    printf(\"%d of %d\\n\", *thing(), me);\n\
    shmem_finalize();\n    return 0;\n}\n";

#[test]
fn a_librarys_data_is_symmetric_where_the_user_says_so() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("thing.c"), LIBRARY).unwrap();
    std::fs::write(at("user.c"), USER).unwrap();
    let library = at("libthing.so");
    printed(installed("oshcc").args(["-shared", "-fPIC", "-o"]).args([&library, &at("thing.c")]));
    // Loaded before the library itself, and after it.
    let (thing, ours) = ("-lthing", "-lmemonet");
    for order in [[thing, ours], [ours, thing]] {
        let mut compile = installed("oshcc");
        compile.arg("-o").args([at("user"), at("user.c")]).arg("-Wl,--no-as-needed");
        compile
            .arg(format!("-L{}", folder.path().display()))
            .arg(format!("-Wl,-rpath,{}", folder.path().display()));
        compile.arg(format!("-L{}/lib", crate::common::PREFIX.display()));
        printed(compile.args(order));
        let mut plain = job(2, &[], &at("user"), &[]);
        let why = complaint(&mut plain);
        assert!(
            why.contains("shmem_int_p: dest: 4 bytes")
                && why.contains("name it in MEMONET_SYMMETRIC_LIBS"),
            "{order:?}: {why}"
        );
        let misspelt = ["--env", "MEMONET_SYMMETRIC_LIBS=libthings.so"];
        let why = complaint(&mut job(2, &misspelt, &at("user"), &[]));
        assert!(why.contains("not loaded: libthings.so"), "{order:?}: {why}");
        let named = ["--env", "MEMONET_SYMMETRIC_LIBS=libother.so:libthing.so"];
        let output = printed(&mut job(2, &named, &at("user"), &[]));
        let mut output: Vec<_> = output.lines().collect();
        output.sort_unstable();
        assert_eq!(output, ["1", "1", "10 of 1", "11 of 0"], "{order:?}");
    }
}

#[test]
fn threads_of_openmp_share_it() {
    const TEXT: &str = "#include <omp.h>\n#include <shmem.h>\n#include <stdio.h>\nstatic long sum, words[4000];\n\
        int main(void) {\n    int level;\n    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);\n\
        int me = shmem_my_pe(), n = shmem_n_pes(), threads = 0;\n    shmem_barrier_all();\n\
        #pragma omp parallel for num_threads(4)\n    for (int i = 0; i < 4000; i++) {\n\
            shmem_long_p(&words[i], i + me, (me + 1) % n);\n        shmem_long_atomic_add(&sum, 1, 0);\n    }\n\
        #pragma omp parallel num_threads(4)\n    {\n        #pragma omp atomic\n        threads++;\n        shmem_quiet();\n    }\n\
        shmem_barrier_all();\n    int right = threads == 4 && level == SHMEM_THREAD_MULTIPLE;\n\
        for (int i = 0; i < 4000; i++) right = right && words[i] == i + (me + n - 1) % n;\n\
        right = right && (me || sum == 4000 * n);\n    printf(\"PE %d %s\\n\", me, right ? \"right\" : \"wrong\");\n\
        shmem_finalize();\n    return !right;\n}\n";
    let folder = folder();
    let (text, program) = (folder.path().join("openmp.c"), folder.path().join("openmp"));
    std::fs::write(&text, TEXT).unwrap();
    for kind in ["-pie", "-static"] {
        // OpenMP's own static library is warned of.
        assert_success(installed("oshcc").args(["-fopenmp", kind, "-o"]).args([&program, &text]));
        assert_eq!(lines(3, &program), each_in_turn("PE # right"), "{kind}");
    }
}
