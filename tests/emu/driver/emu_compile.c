#include "emu_compile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    const int failed = !file || fputs(text, file) < 0;
    return (file && fclose(file) != 0) || failed;
}

/* The shared object calls the primitives of this one. */
static int compile(const char *source, const char *object)
{
    Dl_info self;
    char command[2048];
    if (!dladdr((const void *)(size_t)emu_compile_image, &self))
        return 1;
    snprintf(command, sizeof command,
             "%s -x c -std=gnu17 -O1 -ffp-contract=off -w -fPIC -shared -o '%s' '%s' -x none '%s'",
             EMU_CC, object, source, self.dli_fname);
    return system(command);
}

int emu_compile_has_source(const char *image)
{
    return strstr(image, EMU_SOURCE_MARK) != NULL;
}

int emu_compile_image(const char *image, char *log, unsigned long log_bytes)
{
    const char *text = strstr(image, EMU_SOURCE_MARK);
    char folder[] = "/tmp/weft-emu-XXXXXX", source[64], object[64];
    if (!text)
        return 0;
    if (!mkdtemp(folder))
        return 1;
    snprintf(source, sizeof source, "%s/kernel.i", folder);
    snprintf(object, sizeof object, "%s/kernel.so", folder);
    const int failed =
        write_file(source, text + strlen(EMU_SOURCE_MARK)) || compile(source, object) ||
        !dlopen(object, RTLD_NOW | RTLD_LOCAL); /* stays: constructors register its kernels */
    if (failed) {
        const char *reason = dlerror();
        snprintf(log, log_bytes, "the source does not compile: %s", reason ? reason : "see above");
    }
    unlink(source);
    unlink(object);
    rmdir(folder);
    return failed;
}
