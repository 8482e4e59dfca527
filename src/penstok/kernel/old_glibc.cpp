// For a module with libstdc++ inside that also loads where glibc is older than 2.32. That libstdc++
// asks glibc's `__libc_single_threaded` whether reference counts may be changed without atomic
// instructions. This hidden variable of the same name, and no symbol of glibc, says that they may not.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
