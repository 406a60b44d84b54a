/* The emulated NVRTC: libnvrtc.so.12 for tests. The host's compiler checks and preprocesses the
 * source. The "PTX" declares the kernels and has the C source, which the emulated driver compiles
 * when it loads the module.
 *
 * WEFT_EMU_FAULT=generated makes the first step of each kernel wrong, generated:EXPRESSION where a C
 * expression of the kernel is true: generated:!a.vector; compile fails to compile. */
#include "../driver/emu_compile.h"
#include "kernel/cuda/kernels/kernel_args.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };
enum { TEXT = 1 << 20 };

typedef struct program {
    char folder[32];
    char *source;
    int headers;
    char *ptx, log[512];
} program;
typedef program *nvrtcProgram;

static bool has_fault(const char *name)
{
    const char *fault = getenv("WEFT_EMU_FAULT");
    return fault && !strcmp(fault, name);
}

/* Writes FOLDER/NAME and creates the folders of NAME. */
static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    const bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

static char *read_text(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    char *text = calloc(TEXT, 1);
    if (file && text)
        text[fread(text, 1, TEXT - 1, file)] = 0;
    if (file)
        fclose(file);
    return text;
}

int nvrtcVersion(int *major, int *minor)
{
    *major = 12;
    *minor = 4;
    return OK;
}

const char *nvrtcGetErrorString(int result)
{
    return result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "an error of NVRTC";
}

int nvrtcDestroyProgram(nvrtcProgram *p)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r '%s'", (*p)->folder);
    (void)!system(command);
    free((*p)->source);
    free((*p)->ptx);
    free(*p);
    *p = NULL;
    return OK;
}

int nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int headers,
                       const char *const *header, const char *const *include_name)
{
    program *p = calloc(1, sizeof *p);
    if (!p || !source || !name)
        return p ? INVALID_INPUT : OUT_OF_MEMORY;
    snprintf(p->folder, sizeof p->folder, "/tmp/weft-nvrtc-XXXXXX");
    p->source = strdup(source);
    *out = p;
    if (!mkdtemp(p->folder))
        return INVALID_INPUT;
    for (int i = 0; i < headers; i++)
        if (!write_text(p->folder, include_name[i], header[i]))
            return INVALID_INPUT;
    return OK;
}

/* "WEFT_KERNEL(weft_chain_1, chain_args, ...)": the kernel's name. */
static bool find_name(const char *source, char name[128])
{
    const char *at = strstr(source, "WEFT_KERNEL(");
    size_t length = 0;
    at = at ? at + strlen("WEFT_KERNEL(") : "";
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    snprintf(name, 128, "%.*s", (int)length, at);
    return length > 0;
}

/* Changes the sign of the first step. */
static void plant_fault(program *p)
{
    static const char name[] = "generated", begin[] = "const float s0 = ";
    const char *fault = getenv("WEFT_EMU_FAULT"), *step = strstr(p->source, begin);
    if (!fault || !step || strncmp(fault, name, strlen(name)) != 0)
        return;
    const char *where = fault[strlen(name)] == ':' ? fault + strlen(name) + 1 : "1";
    const int before = (int)(step + strlen(begin) - p->source);
    char *changed;
    if (asprintf(&changed, "%.*s((%s) ? -1.0f : 1.0f) * %s", before, p->source, where,
                 p->source + before) < 0)
        abort();
    free(p->source);
    p->source = changed;
}

/* Runs the compiler on kernel.c. `log` gets its messages. */
static int run_compiler(program *p, const char *options)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && %s -std=gnu17 -DWEFT_EMU -w -I. -I'%s' %s kernel.c 2>log", p->folder,
             EMU_CC, EMU_INCLUDE, options);
    const int failed = system(command);
    char *log = read_text(p->folder, "log");
    snprintf(p->log, sizeof p->log, "%.500s", log ? log : "");
    free(log);
    return failed;
}

static int check_options(int count, const char *const *option)
{
    bool exact = false, arch = false;
    for (int i = 0; i < count; i++) {
        exact |= !strcmp(option[i], "--fmad=false");
        arch |= !strncmp(option[i], "--gpu-architecture=compute_", 27);
    }
    return exact && arch ? OK : INVALID_OPTION;
}

int nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *option)
{
    char name[128];
    if (check_options(count, option) != OK)
        return INVALID_OPTION;
    plant_fault(p);
    if (has_fault("compile") || !find_name(p->source, name) ||
        !write_text(p->folder, "kernel.c", p->source) || run_compiler(p, "-fsyntax-only") ||
        run_compiler(p, "-E -P -o kernel.i"))
        return COMPILATION;
    char *text = read_text(p->folder, "kernel.i");
    p->ptx = calloc(TEXT + 1024, 1);
    if (text && p->ptx)
        snprintf(p->ptx, TEXT + 1024,
                 ".version 8.4\n.target sm_80\n.address_size 64\n"
                 ".visible .entry %s(.param .align 8 .b8 %s_param_0[%zu])\n.maxntid 256, 1, 1\n{\n"
                 "ret;\n}\n%s%s",
                 name, name, sizeof(chain_args), EMU_SOURCE_MARK, text);
    free(text);
    return p->ptx ? OK : OUT_OF_MEMORY;
}

int nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes)
{
    *bytes = p->ptx ? strlen(p->ptx) + 1 : 0;
    return p->ptx ? OK : INVALID_INPUT;
}

int nvrtcGetPTX(nvrtcProgram p, char *ptx)
{
    memcpy(ptx, p->ptx, strlen(p->ptx) + 1);
    return OK;
}

int nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes)
{
    *bytes = strlen(p->log) + 1;
    return OK;
}

int nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    memcpy(log, p->log, strlen(p->log) + 1);
    return OK;
}
