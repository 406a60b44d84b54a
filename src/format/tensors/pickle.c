#include "format/tensors/pickle.h"

#include "base/config.h"
#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 1 << 16 };

typedef struct machine {
    const char *path;
    const unsigned char *at, *end;
    weft_arena *arena;
    weft_pickled *storages; /* NULL: not kept */
    weft_pickled **stack;
    int64_t depth, stack_capacity;
    weft_pickled **memo;
    int64_t memos, memo_capacity;
} machine;

/* The stack entry of a MARK. */
static weft_pickled mark = {.kind = WEFT_PICKLED_NOTHING};

static weft_status bad(const machine *m, const char *what)
{
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = m->path),
                      "the pickle %s. The file is damaged, or torch.save did not write it.", what);
}

/* ---- the stream ----------------------------------------------------------------------------- */

static weft_status take(machine *m, int64_t bytes, const unsigned char **data)
{
    *data = m->at;
    if (bytes < 0 || bytes > m->end - m->at)
        return bad(m, "ends too early");
    m->at += bytes;
    return WEFT_OK;
}

static weft_status take_number(machine *m, int bytes, int64_t *number)
{
    const unsigned char *p;
    uint64_t n = 0;
    *number = 0;
    WEFT_TRY(take(m, bytes, &p));
    for (int i = bytes - 1; i >= 0; i--)
        n = n << 8 | p[i];
    *number = (int64_t)n;
    return WEFT_OK;
}

/* Two's complement, little endian, of any length; more than 8 bytes: 0, as nothing needs them. */
static weft_status take_long(machine *m, int64_t bytes, int64_t *number)
{
    const unsigned char *p;
    uint64_t n = 0;
    *number = 0;
    WEFT_TRY(take(m, bytes, &p));
    for (int64_t i = 0; i < bytes && bytes <= 8; i++)
        n |= (uint64_t)p[i] << (8 * i);
    if (bytes > 0 && bytes < 8 && p[bytes - 1] & 0x80)
        n |= ~(uint64_t)0 << (8 * bytes);
    *number = (int64_t)n;
    return WEFT_OK;
}

/* Up to the line's end, which is passed over. */
static weft_status take_line(machine *m, const char **text)
{
    *text = "";
    const unsigned char *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!end)
        return bad(m, "ends in the middle of a name");
    *text = weft_arena_printf(m->arena, "%.*s", (int)(end - m->at), (const char *)m->at);
    m->at = end + 1;
    return WEFT_ALLOCATED(*text, "%s", m->path);
}

/* ---- the stack ------------------------------------------------------------------------------ */

static weft_status push(machine *m, weft_pickled *v)
{
    WEFT_TRY(WEFT_ALLOCATED(v, "%s", m->path));
    if (m->depth >= MOST_DEPTH * 16)
        return bad(m, "is nested too deeply");
    WEFT_TRY(weft_grow((void **)&m->stack, m->depth, &m->stack_capacity, sizeof *m->stack));
    m->stack[m->depth++] = v;
    return WEFT_OK;
}

static weft_pickled *make(machine *m, weft_pickled_kind kind)
{
    weft_pickled *v = weft_arena_alloc(m->arena, sizeof *v);
    if (v)
        *v = (weft_pickled){.kind = kind};
    return v;
}

static weft_status push_kind(machine *m, weft_pickled_kind kind, int64_t number)
{
    weft_pickled *v = make(m, kind);
    if (v)
        v->number = number;
    return push(m, v);
}

static weft_status push_text(machine *m, int64_t bytes)
{
    const unsigned char *p;
    WEFT_TRY(take(m, bytes, &p));
    weft_pickled *v = make(m, WEFT_PICKLED_TEXT);
    char *text = weft_arena_alloc(m->arena, bytes + 1);
    WEFT_TRY(WEFT_ALLOCATED(v && text, "%s", m->path));
    memcpy(text, p, (size_t)bytes);
    text[bytes] = 0;
    v->text = text;
    return push(m, v);
}

static weft_status pop(machine *m, weft_pickled **v)
{
    *v = &mark;
    if (m->depth < 1 || m->stack[m->depth - 1] == &mark)
        return bad(m, "reads from an empty stack");
    *v = m->stack[--m->depth];
    return WEFT_OK;
}

static weft_status top(machine *m, weft_pickled_kind kind, weft_pickled **v)
{
    *v = &mark;
    if (m->depth < 1 || m->stack[m->depth - 1]->kind != kind)
        return bad(m, "adds an item to an object that has none");
    *v = m->stack[m->depth - 1];
    return WEFT_OK;
}

/* Arrays of lists live in the arena: they double. */
static weft_status add(machine *m, weft_pickled *list, weft_pickled *item)
{
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity ? 2 * list->capacity : 4;
        weft_pickled **more;
        WEFT_TRY(WEFT_ARENA_NEW(m->arena, more, capacity, "%s", m->path));
        if (list->count)
            memcpy(more, list->item, (size_t)list->count * sizeof(weft_pickled *));
        list->item = more;
        list->capacity = capacity;
    }
    list->item[list->count++] = item;
    return WEFT_OK;
}

/* Moves the entries above the last mark into `list` and removes the mark. */
static weft_status gather(machine *m, weft_pickled *list)
{
    int64_t at = m->depth;
    while (at > 0 && m->stack[at - 1] != &mark)
        at--;
    if (at == 0)
        return bad(m, "lacks a mark");
    WEFT_TRY(WEFT_ALLOCATED(list, "%s", m->path));
    for (int64_t i = at; i < m->depth; i++)
        WEFT_TRY(add(m, list, m->stack[i]));
    m->depth = at - 1;
    return WEFT_OK;
}

static weft_status push_tuple(machine *m, int items)
{
    weft_pickled *v = make(m, WEFT_PICKLED_LIST), *item[3] = {0};
    WEFT_TRY(WEFT_ALLOCATED(v, "%s", m->path));
    for (int i = items - 1; i >= 0; i--)
        WEFT_TRY(pop(m, &item[i]));
    for (int i = 0; i < items; i++)
        WEFT_TRY(add(m, v, item[i]));
    return push(m, v);
}

/* Items that were gathered above a container go into it: MARK, items, then APPENDS or SETITEMS. */
static weft_status put_items(machine *m, weft_pickled_kind kind)
{
    weft_pickled gathered = {0}, *to;
    WEFT_TRY(gather(m, &gathered));
    if (kind == WEFT_PICKLED_DICT && gathered.count % 2)
        return bad(m, "has a key without a value");
    WEFT_TRY(top(m, kind, &to));
    for (int64_t i = 0; i < gathered.count; i++)
        WEFT_TRY(add(m, to, gathered.item[i]));
    return WEFT_OK;
}

static weft_status memorise(machine *m, int64_t at)
{
    if (m->depth < 1 || at < 0 || at > MOST_DEPTH * 64)
        return bad(m, "stores an object that does not exist");
    while (m->memos <= at) {
        WEFT_TRY(weft_grow((void **)&m->memo, m->memos, &m->memo_capacity, sizeof *m->memo));
        m->memo[m->memos++] = NULL;
    }
    m->memo[at] = m->stack[m->depth - 1];
    return WEFT_OK;
}

static weft_status recall(machine *m, int64_t at)
{
    if (at < 0 || at >= m->memos || !m->memo[at])
        return bad(m, "reads an object that it did not store");
    return push(m, m->memo[at]);
}

/* ---- names and calls ------------------------------------------------------------------------ */

/* clang-format off */
static const struct {
    const char *storage, *type; /* torch.STORAGE, torch.TYPE */
    weft_dtype dtype;
    const char *packing;
} types[] = {
    {"FloatStorage",    "float32",       WEFT_F32,    NULL},
    {"HalfStorage",     "float16",       WEFT_F16,    NULL},
    {"BFloat16Storage", "bfloat16",      WEFT_BF16,   NULL},
    {"DoubleStorage",   "float64",       WEFT_F64,    NULL},
    {"LongStorage",     "int64",         WEFT_I64,    NULL},
    {"IntStorage",      "int32",         WEFT_I32,    NULL},
    {"ShortStorage",    "int16",         WEFT_F32,    "I16"},
    {"CharStorage",     "int8",          WEFT_F32,    "I8"},
    {"ByteStorage",     "uint8",         WEFT_U8,     NULL},
    {"BoolStorage",     "bool",          WEFT_U8,     NULL},
    {"",                "float8_e4m3fn", WEFT_F8E4M3, NULL},
    {"",                "float8_e5m2",   WEFT_F32,    "F8_E5M2"},
};
/* The result of a call. FIRST: its first argument. INNER: the result of calling the first argument
 * with the third. */
typedef enum call_kind {
    MAKES_NOTHING,
    MAKES_DICT,
    MAKES_TENSOR,
    MAKES_TENSOR_V3,
    FIRST,
    INNER
} call_kind;
static const struct {
    const char *name;
    call_kind kind;
} callable[] = {
    {"collections OrderedDict",                     MAKES_DICT},
    {"collections defaultdict",                     MAKES_DICT},
    {"torch._utils _rebuild_tensor",                MAKES_TENSOR},
    {"torch._utils _rebuild_tensor_v2",             MAKES_TENSOR},
    {"torch._utils _rebuild_tensor_v3",             MAKES_TENSOR_V3},
    {"torch._utils _rebuild_parameter",             FIRST},
    {"torch._utils _rebuild_parameter_with_state",  FIRST},
    {"torch._tensor _rebuild_from_type_v2",         INNER}, /* tensors with attributes, buffers */
    {"torch Size",                                  FIRST},
    /* classes that are named, not called */
    {"torch Tensor",                                MAKES_NOTHING},
    {"torch.nn.parameter Parameter",                MAKES_NOTHING},
    {"torch.nn.parameter Buffer",                   MAKES_NOTHING},
    {"torch.storage UntypedStorage",                MAKES_NOTHING},
    {"torch UntypedStorage",                        MAKES_NOTHING},
    {"torch.serialization _get_layout",             MAKES_NOTHING},
    /* values other than tensors, which are ignored */
    {"torch device",                                MAKES_NOTHING},
    {"collections Counter",                         MAKES_NOTHING},
    {"_codecs encode",                              MAKES_NOTHING},
    {"builtins dict",                               MAKES_DICT},
    {"builtins list",                               MAKES_NOTHING},
    {"builtins set",                                MAKES_NOTHING},
    {"builtins frozenset",                          MAKES_NOTHING},
    {"builtins bytearray",                          MAKES_NOTHING},
    {"__builtin__ dict",                            MAKES_DICT},
    {"__builtin__ list",                            MAKES_NOTHING},
    {"__builtin__ set",                             MAKES_NOTHING},
    {"__builtin__ frozenset",                       MAKES_NOTHING},
    {"__builtin__ bytearray",                       MAKES_NOTHING},
    {"numpy dtype",                                 MAKES_NOTHING},
    {"numpy.core.multiarray scalar",                MAKES_NOTHING},
    {"numpy._core.multiarray scalar",               MAKES_NOTHING},
};
/* clang-format on */

static bool type_of(const char *name, weft_pickled *v)
{
    for (int i = 0; i < WEFT_COUNT(types); i++) {
        char storage[64], type[64];
        snprintf(storage, sizeof storage, "torch %s", types[i].storage);
        snprintf(type, sizeof type, "torch %s", types[i].type);
        if (strcmp(name, storage) && strcmp(name, type))
            continue;
        v->dtype = types[i].dtype;
        v->packing = types[i].packing ? weft_packing_find(types[i].packing) : NULL;
        v->typed = true;
        return true;
    }
    return false;
}

static weft_status push_name(machine *m, const char *module, const char *name)
{
    weft_pickled *v = make(m, WEFT_PICKLED_NAME);
    if (v)
        v->text = weft_arena_printf(m->arena, "%s %s", module, name);
    WEFT_TRY(WEFT_ALLOCATED(v && v->text, "%s", m->path));
    bool known = type_of(v->text, v);
    for (int i = 0; i < WEFT_COUNT(callable) && !known; i++)
        known = !strcmp(v->text, callable[i].name);
    if (!known)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = m->path, .value = name),
                          "the pickle refers to %s.%s, which is not a part of a tensor; weft "
                          "executes nothing from a pickle. Save only the tensors: "
                          "torch.save(model.state_dict(), ...), or save as safetensors.",
                          module, name);
    return push(m, v);
}

static weft_status rebuild(machine *m, const weft_pickled *args, bool third, weft_pickled **out)
{
    weft_pickled *t = make(m, WEFT_PICKLED_TENSOR);
    WEFT_TRY(WEFT_ALLOCATED(t, "%s", m->path));
    if (args->count < 4 || args->item[0]->kind != WEFT_PICKLED_STORAGE ||
        args->item[1]->kind != WEFT_PICKLED_NUMBER || args->item[2]->kind != WEFT_PICKLED_LIST ||
        args->item[3]->kind != WEFT_PICKLED_LIST)
        return bad(m, "has a tensor with unexpected arguments");
    const weft_pickled *type = third && args->count > 6 ? args->item[6] : args->item[0];
    if (!type->typed)
        return bad(m, "has a tensor without a type");
    *t = (weft_pickled){.kind = WEFT_PICKLED_TENSOR,
                        .storage = args->item[0],
                        .number = args->item[1]->number,
                        .size = args->item[2],
                        .stride = args->item[3],
                        .dtype = type->dtype,
                        .packing = type->packing};
    *out = t;
    return WEFT_OK;
}

static call_kind kind_of(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(callable); i++)
        if (!strcmp(name, callable[i].name))
            return callable[i].kind;
    return MAKES_NOTHING;
}

/* dict([[key, value], ...]), as Python 2 wrote an OrderedDict; without pairs it is empty. */
static weft_status make_dict(machine *m, const weft_pickled *args, weft_pickled **out)
{
    weft_pickled *v = make(m, WEFT_PICKLED_DICT);
    const bool has_list = args->count > 0 && args->item[0]->kind == WEFT_PICKLED_LIST;
    for (int64_t i = 0; v && has_list && i < args->item[0]->count; i++) {
        const weft_pickled *pair = args->item[0]->item[i];
        if (pair->kind != WEFT_PICKLED_LIST || pair->count != 2)
            return bad(m, "makes a dict of items that are not pairs");
        WEFT_TRY(add(m, v, pair->item[0]));
        WEFT_TRY(add(m, v, pair->item[1]));
    }
    *out = v;
    return WEFT_OK;
}

static weft_status result_of(machine *m, const weft_pickled *f, const weft_pickled *args,
                             weft_pickled **v)
{
    call_kind kind = kind_of(f->text);
    if (kind == INNER) { /* function, class, arguments, state */
        if (args->count < 3 || args->item[0]->kind != WEFT_PICKLED_NAME ||
            args->item[2]->kind != WEFT_PICKLED_LIST)
            return bad(m, "has a tensor with unexpected arguments");
        kind = kind_of(args->item[0]->text);
        args = args->item[2];
    }
    switch (kind) {
    case MAKES_TENSOR: return rebuild(m, args, false, v);
    case MAKES_TENSOR_V3: return rebuild(m, args, true, v);
    case FIRST: *v = args->count > 0 ? args->item[0] : make(m, WEFT_PICKLED_NOTHING); break;
    case MAKES_DICT: return make_dict(m, args, v);
    case MAKES_NOTHING:
    case INNER: *v = make(m, WEFT_PICKLED_NOTHING); break;
    }
    return WEFT_OK;
}

static weft_status call(machine *m)
{
    weft_pickled *args, *f, *v = NULL;
    WEFT_TRY(pop(m, &args));
    WEFT_TRY(pop(m, &f));
    if (f->kind != WEFT_PICKLED_NAME || args->kind != WEFT_PICKLED_LIST)
        return bad(m, "calls an object that is not a function");
    WEFT_TRY(result_of(m, f, args, &v));
    return push(m, v);
}

/* Pushes ("storage", type, key, location, elements); the data are in another part of the file. */
static weft_status push_storage(machine *m)
{
    weft_pickled *id, *v = make(m, WEFT_PICKLED_STORAGE);
    WEFT_TRY(pop(m, &id));
    WEFT_TRY(WEFT_ALLOCATED(v, "%s", m->path));
    if (id->kind != WEFT_PICKLED_LIST || id->count < 5 || id->item[1]->kind != WEFT_PICKLED_NAME ||
        id->item[2]->kind != WEFT_PICKLED_TEXT || id->item[4]->kind != WEFT_PICKLED_NUMBER)
        return bad(m, "has a storage with unexpected arguments");
    *v = (weft_pickled){.kind = WEFT_PICKLED_STORAGE,
                        .text = id->item[2]->text,
                        .number = id->item[4]->number,
                        .dtype = id->item[1]->dtype,
                        .packing = id->item[1]->packing,
                        .typed = id->item[1]->typed};
    if (m->storages)
        WEFT_TRY(add(m, m->storages, v));
    return push(m, v);
}

static weft_status push_global(machine *m)
{
    const char *module, *name;
    WEFT_TRY(take_line(m, &module));
    WEFT_TRY(take_line(m, &name));
    return push_name(m, module, name);
}

static weft_status push_stack_global(machine *m)
{
    weft_pickled *module, *name;
    WEFT_TRY(pop(m, &name));
    WEFT_TRY(pop(m, &module));
    if (name->kind != WEFT_PICKLED_TEXT || module->kind != WEFT_PICKLED_TEXT)
        return bad(m, "has a reference without a name");
    return push_name(m, module->text, name->text);
}

/* ---- instructions --------------------------------------------------------------------------- */

static weft_status set_item(machine *m)
{
    weft_pickled *key, *value, *to;
    WEFT_TRY(pop(m, &value));
    WEFT_TRY(pop(m, &key));
    WEFT_TRY(top(m, WEFT_PICKLED_DICT, &to));
    WEFT_TRY(add(m, to, key));
    return add(m, to, value);
}

static weft_status append(machine *m)
{
    weft_pickled *value, *to;
    WEFT_TRY(pop(m, &value));
    WEFT_TRY(top(m, WEFT_PICKLED_LIST, &to));
    return add(m, to, value);
}

/* Pushes a container of the stack's items above the mark. */
static weft_status push_gathered(machine *m, weft_pickled_kind kind)
{
    weft_pickled *v = make(m, kind);
    WEFT_TRY(gather(m, v));
    if (kind == WEFT_PICKLED_DICT && v->count % 2)
        return bad(m, "has a key without a value");
    return push(m, v);
}

/* BUILD gives an OrderedDict attributes (_metadata), which weft does not need. */
static weft_status drop_state(machine *m)
{
    weft_pickled *state;
    return pop(m, &state);
}

static weft_status passed_number(machine *m, int bytes, weft_status (*use)(machine *, int64_t))
{
    int64_t n;
    WEFT_TRY(take_number(m, bytes, &n));
    return use(m, n);
}

static weft_status push_number(machine *m, int64_t n)
{
    return push_kind(m, WEFT_PICKLED_NUMBER, n);
}

static weft_status push_int(machine *m, int64_t n)
{
    return push_number(m, (int32_t)(uint32_t)n);
}

static weft_status push_long(machine *m, int64_t bytes)
{
    int64_t n;
    WEFT_TRY(take_long(m, bytes, &n));
    return push_number(m, n);
}

static weft_status push_real(machine *m, int64_t ignored)
{
    (void)ignored;
    return push_kind(m, WEFT_PICKLED_NOTHING, 0);
}

static weft_status ignore(machine *m, int64_t n)
{
    (void)m;
    (void)n;
    return WEFT_OK;
}

static weft_status step(machine *m, unsigned char op)
{
    switch (op) {
    case 0x80: return passed_number(m, 1, ignore); /* PROTO */
    case 0x95: return passed_number(m, 8, ignore); /* FRAME */
    case '(': return push(m, &mark);               /* MARK */
    case '0': return drop_state(m);                /* POP */
    case 'N':
    case 0x88:
    case 0x89: return push_real(m, 0);              /* NONE, NEWTRUE, NEWFALSE */
    case 'J': return passed_number(m, 4, push_int); /* BININT */
    case 'K': return passed_number(m, 1, push_number);
    case 'M': return passed_number(m, 2, push_number);
    case 0x8a: return passed_number(m, 1, push_long); /* LONG1 */
    case 0x8b: return passed_number(m, 4, push_long); /* LONG4 */
    case 'G': return passed_number(m, 8, push_real);  /* BINFLOAT */
    case 'X': return passed_number(m, 4, push_text);  /* BINUNICODE */
    case 0x8c: return passed_number(m, 1, push_text);
    case 0x8d: return passed_number(m, 8, push_text);
    case 'U': return passed_number(m, 1, push_text); /* SHORT_BINSTRING */
    case 'T': return passed_number(m, 4, push_text);
    case 'C': return passed_number(m, 1, push_text); /* SHORT_BINBYTES */
    case 'B': return passed_number(m, 4, push_text);
    case 0x8e:
    case 0x96: return passed_number(m, 8, push_text);      /* BINBYTES8, BYTEARRAY8 */
    case 0x8f: return push_kind(m, WEFT_PICKLED_LIST, 0);  /* EMPTY_SET */
    case 0x90: return put_items(m, WEFT_PICKLED_LIST);     /* ADDITEMS */
    case 0x91: return push_gathered(m, WEFT_PICKLED_LIST); /* FROZENSET */
    case ')': return push_tuple(m, 0);
    case 0x85: return push_tuple(m, 1);
    case 0x86: return push_tuple(m, 2);
    case 0x87: return push_tuple(m, 3);
    case 't':
    case 'l': return push_gathered(m, WEFT_PICKLED_LIST);
    case 'd': return push_gathered(m, WEFT_PICKLED_DICT);
    case ']': return push_kind(m, WEFT_PICKLED_LIST, 0);
    case '}': return push_kind(m, WEFT_PICKLED_DICT, 0);
    case 'a': return append(m);
    case 'e': return put_items(m, WEFT_PICKLED_LIST);
    case 's': return set_item(m);
    case 'u': return put_items(m, WEFT_PICKLED_DICT);
    case 'q': return passed_number(m, 1, memorise); /* BINPUT */
    case 'r': return passed_number(m, 4, memorise);
    case 0x94: return memorise(m, m->memos);      /* MEMOIZE */
    case 'h': return passed_number(m, 1, recall); /* BINGET */
    case 'j': return passed_number(m, 4, recall);
    case 'c': return push_global(m);
    case 0x93: return push_stack_global(m);
    case 'Q': return push_storage(m); /* BINPERSID */
    case 'R': return call(m);         /* REDUCE */
    case 'b': return drop_state(m);   /* BUILD */
    default:
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = m->path, WEFT_NUMBER(op)),
                          "the pickle has the instruction 0x%02x, which tensors do not need; weft "
                          "executes nothing from a pickle. Save only the tensors: "
                          "torch.save(model.state_dict(), ...), or save as safetensors.",
                          op);
    }
}

/* Runs the program and sets *value to its result. */
static weft_status run(machine *m, weft_pickled **value)
{
    for (;;) {
        const unsigned char *op;
        WEFT_TRY(take(m, 1, &op));
        if (*op == '.')
            return pop(m, value);
        WEFT_TRY(step(m, *op));
    }
}

weft_status weft_pickle_parse(const char *path, const unsigned char **at, const unsigned char *end,
                              weft_arena *arena, weft_pickled *storages, weft_pickled **value)
{
    *value = &mark;
    machine m = {.path = path, .at = *at, .end = end, .arena = arena, .storages = storages};
    const weft_status_code status = run(&m, value);
    weft_free(m.stack);
    weft_free(m.memo);
    *at = m.at;
    return status;
}
