/* The emulated NVRTC: libnvrtc.so.12 for tests. The host's compiler checks and preprocesses the
 * source. The "PTX", or "machine code", names the kernel and has the C source, which the emulated
 * driver compiles when it loads the module.
 *
 * WEFT_EMU_FAULT=generated makes the first step of each kernel wrong, generated:EXPRESSION where a C
 * expression of the kernel is true: generated:!a.vector. constant:NAME adds 1 to the constant NAME
 * of a kernel for a shape. compile fails to compile. old knows no architecture after 8.6. */
#include "../driver/emu_compile.h"

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
    int arch;
    bool is_machine;
    char *code, log[512];
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
    free((*p)->code);
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

/* "WEFT_KERNEL(weft_chain_1, chain_args, ...)" or "WEFT_CHOSEN_NAME weft_norm_1": the kernel's
 * name. */
static bool find_name(const char *source, char name[128])
{
    static const char *const before[] = {"WEFT_CHOSEN_NAME ", "WEFT_KERNEL("};
    const char *at = NULL;
    size_t length = 0;
    for (int i = 0; i < 2 && !at; i++)
        if ((at = strstr(source, before[i])))
            at += strlen(before[i]);
    at = at ? at : "";
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    snprintf(name, 128, "%.*s", (int)length, at);
    return length > 0;
}

static void insert(program *p, const char *at, const char *text)
{
    char *changed;
    if (asprintf(&changed, "%.*s%s%s", (int)(at - p->source), p->source, text, at) < 0)
        abort();
    free(p->source);
    p->source = changed;
}

/* Changes the sign of the first step. */
static void plant_step(program *p, const char *fault)
{
    static const char name[] = "generated", begin[] = "const float s0 = ";
    const char *step = strstr(p->source, begin);
    char factor[200];
    if (!step || strncmp(fault, name, strlen(name)) != 0)
        return;
    snprintf(factor, sizeof factor, "((%s) ? -1.0f : 1.0f) * ",
             fault[strlen(name)] == ':' ? fault + strlen(name) + 1 : "1");
    insert(p, step + strlen(begin), factor);
}

/* Adds 1 to a constant. */
static void plant_constant(program *p, const char *fault)
{
    static const char name[] = "constant:";
    char assignment[120];
    if (strncmp(fault, name, strlen(name)) != 0)
        return;
    snprintf(assignment, sizeof assignment, "given.%s = ", fault + strlen(name));
    const char *at = strstr(p->source, assignment);
    if (at)
        insert(p, at + strlen(assignment), "1 + ");
}

static void plant_fault(program *p)
{
    const char *fault = getenv("WEFT_EMU_FAULT");
    if (fault) {
        plant_step(p, fault);
        plant_constant(p, fault);
    }
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

static int read_options(program *p, int count, const char *const *option)
{
    bool exact = false;
    char kind[16] = "";
    for (int i = 0; i < count; i++) {
        exact |= !strcmp(option[i], "--fmad=false");
        sscanf(option[i], "--gpu-architecture=%15[a-z]_%d", kind, &p->arch);
    }
    p->is_machine = !strcmp(kind, "sm");
    return exact && (p->is_machine || !strcmp(kind, "compute")) && p->arch >= 80 ? OK
                                                                                 : INVALID_OPTION;
}

int nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *option)
{
    char name[128];
    if (read_options(p, count, option) != OK)
        return INVALID_OPTION;
    plant_fault(p);
    if (has_fault("compile") || !find_name(p->source, name) ||
        !write_text(p->folder, "kernel.c", p->source) || run_compiler(p, "-fsyntax-only") ||
        run_compiler(p, "-E -P -o kernel.i"))
        return COMPILATION;
    char *text = read_text(p->folder, "kernel.i");
    p->code = calloc(TEXT + 1024, 1);
    if (text && p->code)
        snprintf(p->code, TEXT + 1024,
                 "%s.version 8.4\n.target sm_%d\n.address_size 64\n"
                 ".visible .entry %s()\n{\nret;\n}\n%s%s",
                 p->is_machine ? EMU_MACHINE_MARK : "", p->arch, name, EMU_SOURCE_MARK, text);
    free(text);
    return p->code ? OK : OUT_OF_MEMORY;
}

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = has_fault("old") ? 2 : 4;
    return OK;
}

int nvrtcGetSupportedArchs(int *list)
{
    static const int known[] = {80, 86, 89, 90};
    memcpy(list, known, (has_fault("old") ? 2 : 4) * sizeof *known);
    return OK;
}

static int code_bytes(nvrtcProgram p, bool is_machine, size_t *bytes)
{
    const bool has = p->code && p->is_machine == is_machine;
    *bytes = has ? strlen(p->code) + 1 : 0;
    return has ? OK : INVALID_INPUT;
}

static int copy_code(nvrtcProgram p, bool is_machine, char *to)
{
    size_t bytes;
    if (code_bytes(p, is_machine, &bytes) != OK)
        return INVALID_INPUT;
    memcpy(to, p->code, bytes);
    return OK;
}

int nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes)
{
    return code_bytes(p, false, bytes);
}

int nvrtcGetPTX(nvrtcProgram p, char *ptx)
{
    return copy_code(p, false, ptx);
}

int nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes)
{
    return code_bytes(p, true, bytes);
}

int nvrtcGetCUBIN(nvrtcProgram p, char *code)
{
    return copy_code(p, true, code);
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
