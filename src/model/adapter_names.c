#include "model/adapter_names.h"

#include "base/compare.h"
#include "base/config.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "model/key_mapping.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kind of a tensor ----------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    const char *end;
    weft_adapter_kind kind;
} ends[] = {
    {".lora_A.weight",         WEFT_ADAPTER_DOWN},
    {".lora_A.default.weight", WEFT_ADAPTER_DOWN},
    {".lora_down.weight",      WEFT_ADAPTER_DOWN},
    {".lora.down.weight",      WEFT_ADAPTER_DOWN},
    {".lora_B.weight",         WEFT_ADAPTER_UP},
    {".lora_B.default.weight", WEFT_ADAPTER_UP},
    {".lora_up.weight",        WEFT_ADAPTER_UP},
    {".lora.up.weight",        WEFT_ADAPTER_UP},
    {".alpha",                 WEFT_ADAPTER_ALPHA},
    {".alpha_scale",           WEFT_ADAPTER_SCALE},
    {".diff",                  WEFT_ADAPTER_WEIGHT},
    {".diff_b",                WEFT_ADAPTER_BIAS},
};
static const struct {
    const char *begin, *name; /* start of a name component */
} others[] = {
    {"dora_scale",            "DoRA"},
    {"lora_magnitude_vector", "DoRA"},
    {"hada_",                 "LoHa"},
    {"lokr_",                 "LoKr"},
    {"lora_mid",              "a LoRA with a matrix in the middle (LoCon's CP form)"},
    {"oft_",                  "OFT"},
    {"boft_",                 "BOFT"},
    {"lora_embedding_",       "a LoRA of an embedding"},
};
/* clang-format on */

/* Whether the tensor is block *block of a module's B. */
static bool is_block(const char *name, size_t *module, int *block)
{
    static const char begin[] = ".lora_up.blocks.";
    const char *at = strstr(name, begin);
    int length = 0;
    *block = -1;
    if (!at || sscanf(at + strlen(begin), "%d%n", block, &length) != 1 || *block < 0 ||
        *block >= WEFT_ADAPTER_PARTS || strcmp(at + strlen(begin) + length, ".weight") != 0) {
        *block = -1;
        return false;
    }
    *module = (size_t)(at - name);
    return true;
}

weft_adapter_kind weft_adapter_kind_of(const char *name, size_t *module, const char **foreign,
                                       int *block)
{
    const size_t length = strlen(name);
    if (is_block(name, module, block))
        return WEFT_ADAPTER_UP;
    for (int i = 0; i < WEFT_COUNT(ends); i++) {
        const size_t end = strlen(ends[i].end);
        *module = length - end;
        if (length > end && !strcmp(name + length - end, ends[i].end))
            return ends[i].kind;
    }
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        for (int i = 0; i < WEFT_COUNT(others); i++)
            if (!strncmp(dot + 1, others[i].begin, strlen(others[i].begin))) {
                *module = (size_t)(dot - name);
                *foreign = others[i].name;
                return WEFT_ADAPTER_FOREIGN;
            }
    return WEFT_ADAPTER_UNKNOWN;
}

/* ---- name components ------------------------------------------------------------------------ */

/* Adds the components of a name. Marks of rename rules also end a component. */
static weft_status add_words(weft_adapter_names *n, const char *name)
{
    for (const char *at = name; *at;) {
        const size_t length = strcspn(at, ".{,}[]~");
        if (length > 0) {
            WEFT_TRY(weft_grow((void **)&n->word, n->words, &n->capacity, sizeof *n->word));
            char *copy;
            WEFT_TRY(WEFT_NEW(copy, (int64_t)length + 1, "the names of an adapter"));
            n->word[n->words++] = memcpy(copy, at, length);
        }
        at += length + (at[length] != '\0');
    }
    return WEFT_OK;
}

static void remove_duplicates(weft_adapter_names *n)
{
    int64_t kept = 0;
    if (n->words > 1)
        qsort(n->word, (size_t)n->words, sizeof *n->word, weft_compare_text);
    for (int64_t i = 0; i < n->words; i++)
        if (kept && !strcmp(n->word[kept - 1], n->word[i]))
            weft_free(n->word[i]);
        else
            n->word[kept++] = n->word[i];
    n->words = kept;
}

static bool is_param(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) && weft_graph_node(g, weft_value_get(g, v)->node)->op == WEFT_OP_PARAM;
}

weft_status weft_adapter_names_open(const weft_graph *g, const char *scope,
                                    const weft_key_mapping *d, weft_adapter_names *n)
{
    *n = (weft_adapter_names){.graph = g, .scope = scope, .mapping = d};
    const size_t skip = strlen(scope);
    weft_status_code status = WEFT_OK;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *node = weft_graph_node(g, i);
        const char *name = node->op == WEFT_OP_PARAM ? weft_value_get(g, node->out[0])->name : NULL;
        if (name && !strncmp(name, scope, skip))
            WEFT_GO(add_words(n, name + skip));
    }
    for (int i = 0; i < d->rules; i++)
        WEFT_GO(add_words(n, d->rule[i].foreign_name));
    remove_duplicates(n);
out:
    if (status != WEFT_OK)
        weft_adapter_names_close(n);
    return status;
}

void weft_adapter_names_close(weft_adapter_names *n)
{
    for (int64_t i = 0; i < n->words; i++)
        weft_free(n->word[i]);
    weft_free(n->word);
    n->word = NULL;
    n->words = 0;
}

/* A "#" at the end of a word of a rule is any number. */
static bool is_word(const weft_adapter_names *n, const char *text, size_t length)
{
    char word[200];
    const char *key = word;
    size_t stem = length;
    while (stem > 0 && isdigit((unsigned char)text[stem - 1]))
        stem--;
    if (stem == 0)
        return length > 0;
    if (length >= sizeof word)
        return false;
    memcpy(word, text, length);
    word[length] = '\0';
    if (bsearch(&key, n->word, (size_t)n->words, sizeof *n->word, weft_compare_text))
        return true;
    word[stem] = '#';
    word[stem + 1] = '\0';
    return stem < length &&
           bsearch(&key, n->word, (size_t)n->words, sizeof *n->word, weft_compare_text);
}

/* ---- parameters ----------------------------------------------------------------------------- */

static bool find_param(const weft_adapter_names *n, const char *name, weft_adapter_target *t)
{
    char full[700], stack[700];
    if (snprintf(full, sizeof full, "%s%s", n->scope, name) >= (int)sizeof full)
        return false;
    weft_value v = weft_graph_find(n->graph, full);
    t->item = -1;
    for (int i = 0; !is_param(n->graph, v); i++) {
        if (!weft_stack_of(full, i, stack, sizeof stack, &t->item))
            return false;
        v = weft_graph_find(n->graph, stack);
    }
    const weft_value_info *info = weft_value_get(n->graph, v);
    t->param = info->name;
    t->shape = info->shape;
    if (t->item < 0)
        return true;
    for (int i = 1; i < t->shape.rank; i++)
        t->shape.dim[i - 1] = t->shape.dim[i];
    t->shape.rank--;
    return t->item < info->shape.dim[0];
}

/* Finds a module by its name with dots, without a prefix. */
static bool find_dotted(const weft_adapter_names *n, const char *module, const char *end,
                        weft_adapter_targets *to)
{
    char foreign_name[600], own_name[700], name[700];
    *to = (weft_adapter_targets){0};
    if (snprintf(foreign_name, sizeof foreign_name, "%s%s", module, end) >=
            (int)sizeof foreign_name ||
        !weft_key_mapping_rename(n->mapping, foreign_name, own_name, sizeof own_name))
        return false;
    weft_key_mapping_choose(n->graph, n->scope, own_name, sizeof own_name);
    to->turned = weft_key_mapping_take_swapped(own_name);
    to->copies = weft_key_mapping_take_copies(own_name);
    while (weft_key_mapping_part(own_name, to->count, name, sizeof name)) {
        if (to->count == WEFT_ADAPTER_PARTS || !find_param(n, name, &to->part[to->count]))
            return false;
        to->count++;
    }
    return to->count > 0;
}

/* Finds a module by its name with underscores in place of dots. Tries every split into components
 * of the model or the key mapping, until one names a module. `done` characters of `dotted` are
 * split. */
static bool find_flat(const weft_adapter_names *n, char *dotted, size_t done, const char *end,
                      weft_adapter_targets *to)
{
    char *at = dotted + done;
    for (size_t length = 1; at[length - 1]; length++) {
        const char next = at[length];
        if ((next && next != '_') || !is_word(n, at, length))
            continue;
        if (!next)
            return find_dotted(n, dotted, end, to);
        at[length] = '.';
        if (find_flat(n, dotted, done + length + 1, end, to))
            return true;
        at[length] = '_';
    }
    return false;
}

/* Copies a name of LongCat-Video's adapters, with dots for its marks. Returns false for others. */
static bool take_marks(const char *module, char *name, size_t bytes)
{
    static const char begin[] = "lora" WEFT_ADAPTER_MARK;
    const size_t mark = strlen(WEFT_ADAPTER_MARK);
    size_t used = 0;
    if (strncmp(module, begin, strlen(begin)) != 0)
        return false;
    for (const char *at = module + strlen(begin); *at && used + 1 < bytes;) {
        const bool dot = !strncmp(at, WEFT_ADAPTER_MARK, mark);
        name[used++] = *at;
        if (dot)
            name[used - 1] = '.';
        at += dot ? mark : 1;
    }
    name[used] = '\0';
    return true;
}

bool weft_adapter_names_find(const weft_adapter_names *n, const char *module, const char *end,
                             weft_adapter_targets *to)
{
    static const char *const flat[] = {"lora_unet_", "lora_transformer_"};
    static const char *const prefixes[] = {"base_model.model.",
                                           "model.diffusion_model.",
                                           "diffusion_model.",
                                           "transformer.",
                                           "dit.",
                                           "net."};
    char name[600];
    for (int i = 0; i < WEFT_COUNT(flat); i++)
        if (!strncmp(module, flat[i], strlen(flat[i])) &&
            snprintf(name, sizeof name, "%s", module + strlen(flat[i])) < (int)sizeof name)
            return find_flat(n, name, 0, end, to);
    if (take_marks(module, name, sizeof name))
        return find_dotted(n, name, end, to);
    for (bool more = true; more;) { /* prefixes may follow each other */
        if (find_dotted(n, module, end, to))
            return true;
        more = false;
        for (int i = 0; i <= WEFT_COUNT(prefixes) && !more; i++) {
            const char *prefix = i < WEFT_COUNT(prefixes) ? prefixes[i] : n->scope;
            more = *prefix && !strncmp(module, prefix, strlen(prefix));
            if (more)
                module += strlen(prefix);
        }
    }
    return false;
}
