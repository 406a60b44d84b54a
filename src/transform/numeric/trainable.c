#include "transform/numeric/trainable.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char down_end[] = ".lora_A.weight", up_end[] = ".lora_B.weight", weight[] = ".weight";

bool weft_trainable_given(const weft_trainable *t)
{
    return t->train.count || t->freeze.count || t->rank;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && !strcmp(name + n - e, end);
}

bool weft_param_is_lora(const char *name, size_t *module)
{
    *module = strlen(name) - (sizeof down_end - 1);
    return ends_with(name, down_end) || ends_with(name, up_end);
}

/* ---- patterns ------------------------------------------------------------------------------- */

static bool fits(const char *pattern, const char *name)
{
    if (strchr(pattern, '*'))
        return weft_name_matches(pattern, name);
    const size_t n = strlen(name), p = strlen(pattern);
    return ends_with(name, pattern) && (n == p || name[n - p - 1] == '.');
}

/* Matches a parameter, its module, or any enclosing module. */
static bool fits_param(const char *pattern, const char *name)
{
    char within[512];
    snprintf(within, sizeof within, "%s", name);
    for (char *dot = within; dot; dot = strrchr(within, '.')) {
        if (dot > within)
            *dot = '\0';
        if (fits(pattern, within))
            return true;
    }
    return false;
}

static bool fits_linear(const char *pattern, const char *module)
{
    return !strcmp(pattern, "all-linear") || fits(pattern, module);
}

static bool any_fits(const weft_string_list *list, const char *name,
                     bool (*one)(const char *pattern, const char *name))
{
    for (int64_t i = 0; i < list->count; i++)
        if (one(list->item[i], name))
            return true;
    return false;
}

/* The name of parameter `v` without the model's scope; NULL: not a parameter of the model. */
static const char *own_name(const weft_graph *g, const weft_trainable *t, weft_value v)
{
    if (!weft_value_ok(v))
        return NULL;
    const weft_value_info *info = weft_value_get(g, v);
    const size_t skip = strlen(t->scope);
    if (weft_graph_node(g, info->node)->op != WEFT_OP_PARAM || strncmp(info->name, t->scope, skip))
        return NULL;
    if (!skip)
        return info->name;
    return info->name[skip] == '.' ? info->name + skip + 1 : NULL;
}

/* Sets `module` to the name of the module whose weight linear node `n` uses. Returns false if the
 * module does not belong to the model. */
static bool module_of(const weft_graph *g, const weft_trainable *t, const weft_node *n,
                      char *module, size_t size)
{
    const char *name = n->op == WEFT_OP_LINEAR ? own_name(g, t, n->in[1]) : NULL;
    if (!name || !ends_with(name, weight))
        return false;
    const int length = (int)(strlen(name) - (sizeof weight - 1));
    return snprintf(module, size, "%.*s", length, name) < (int)size;
}

/* ---- patterns that match nothing ----------------------------------------------------------- */

/* Lists the last name components of the linear layers, each once, up to the size of a message. */
static void list_layers(const weft_graph *g, const weft_trainable *t, char text[400])
{
    char module[512], word[516];
    snprintf(text, 400, ", ");
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        if (!module_of(g, t, weft_graph_node(g, n), module, sizeof module))
            continue;
        const char *last = module + strlen(module); /* "to_out.0": a number is not a useful name */
        while (last > module && (last[-1] != '.' || (*last >= '0' && *last <= '9')))
            last--;
        snprintf(word, sizeof word, ", %s, ", last);
        const size_t used = strlen(text);
        if (!strstr(text, word) && used + strlen(word) < 400)
            memcpy(text + used, word + 2, strlen(word) - 1);
    }
    const size_t used = strlen(text);
    text[used - 2] = '\0';
    memmove(text, text + 2, used > 4 ? used - 3 : 1);
}

static bool fits_nothing(const weft_graph *g, const weft_trainable *t, const char *pattern,
                         bool layers)
{
    char module[512];
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = layers ? NULL : own_name(g, t, node->out[0]);
        if (layers && module_of(g, t, node, module, sizeof module) && fits_linear(pattern, module))
            return false;
        if (name && fits_param(pattern, name))
            return false;
    }
    return true;
}

static weft_status no_layer(const weft_graph *g, const weft_trainable *t, const char *pattern)
{
    char layers[400];
    list_layers(g, t, layers);
    return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "lora.targets", .value = pattern),
                      "\"%s\" matches %s of this model; its linear layers end with %s", pattern,
                      fits_nothing(g, t, pattern, false) ? "no name" : "no linear layer",
                      layers[0] ? layers : "nothing");
}

static weft_status check_targets(const weft_graph *g, const weft_trainable *t)
{
    int64_t unmatched = 0;
    for (int64_t i = 0; i < t->targets.count; i++)
        if (fits_nothing(g, t, t->targets.item[i], true)) {
            if (!t->auto_targets)
                return no_layer(g, t, t->targets.item[i]);
            unmatched++;
        }
    return unmatched < t->targets.count || !t->rank ? WEFT_OK : no_layer(g, t, "auto");
}

static weft_status check_params(const weft_graph *g, const weft_trainable *t,
                                const weft_string_list *list, const char *key)
{
    for (int64_t i = 0; i < list->count; i++) {
        const char *pattern = list->item[i], *name = NULL;
        if (!fits_nothing(g, t, pattern, false))
            continue;
        for (int32_t n = 0; n < weft_graph_node_count(g) && !name; n++)
            name = own_name(g, t, weft_graph_node(g, n)->out[0]);
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, .value = pattern),
                          "\"%s\" matches no name of this model; use names, or ends of names, of "
                          "its parameters or modules ('*' is any text), as in %s",
                          pattern, name ? name : "none");
    }
    return WEFT_OK;
}

static weft_status check(const weft_graph *g, const weft_trainable *t)
{
    if (t->rank && !t->targets.count)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "lora.targets"),
                          "the list is empty; use names such as to_q, or all-linear");
    WEFT_TRY(check_targets(g, t));
    WEFT_TRY(check_params(g, t, &t->train, "train"));
    return check_params(g, t, &t->freeze, "freeze");
}

/* ---- the graph ------------------------------------------------------------------------------ */

typedef struct tuner {
    const weft_trainable *t;
    weft_rewrite r;
    weft_value (*pair)[2]; /* per value of the old graph: lora_A, lora_B; or WEFT_NONE */
    bool *multiplies;      /* per value: only linear layers read it, as weight */
} tuner;

static bool is_frozen(const weft_trainable *t, const char *name)
{
    return t->rank || (t->train.count && !any_fits(&t->train, name, fits_param)) ||
           any_fits(&t->freeze, name, fits_param);
}

static void put_param(tuner *u, int32_t n)
{
    const weft_node *node = weft_graph_node(u->r.from, n);
    const char *name = own_name(u->r.from, u->t, node->out[0]);
    if (!name || !is_frozen(u->t, name)) {
        weft_rewrite_node(&u->r, n, NULL);
        return;
    }
    weft_attr_source attr = *(const weft_attr_source *)node->attr;
    attr.frozen = true;
    if (u->t->bf16_base && u->multiplies[node->out[0].id] && attr.dtype == WEFT_F32)
        attr.dtype = WEFT_BF16;
    u->r.map[node->out[0].id] =
        weft_source(u->r.to, WEFT_OP_PARAM, weft_value_get(u->r.from, node->out[0])->name, &attr);
}

static weft_value matrix(tuner *u, const char *module, const char *end, int64_t rows,
                         int64_t columns, weft_init init)
{
    char name[700];
    const weft_shape shape = WEFT_SHAPE(rows, columns);
    if (snprintf(name, sizeof name, "%s%s%s%s", u->t->scope, *u->t->scope ? "." : "", module,
                 end) >= (int)sizeof name)
        return weft_graph_fail(u->r.to, WEFT_MSG_PASS_INVALID, "%s: too long a name", module);
    return weft_source(
        u->r.to, WEFT_OP_PARAM, name,
        &(weft_attr_source){.dtype = WEFT_F32, .shape = shape, .global = shape, .init = init});
}

/* Emits the low-rank branch of linear node `n`, which is already copied. */
static void emit_lora(tuner *u, int32_t n, const char *module)
{
    const weft_node *node = weft_graph_node(u->r.from, n);
    const weft_shape s = weft_value_get(u->r.from, node->in[1])->shape;
    weft_value *pair = u->pair[node->in[1].id], y = u->r.map[node->out[0].id];
    weft_graph *g = u->r.to;
    if (!weft_value_ok(pair[0])) { /* several nodes may read one weight */
        const weft_init uniform_init = {.kind = WEFT_INIT_UNIFORM,
                                        .value = 1 / sqrt((double)s.dim[1])};
        pair[0] = matrix(u, module, down_end, u->t->rank, s.dim[1], uniform_init);
        pair[1] =
            matrix(u, module, up_end, s.dim[0], u->t->rank, (weft_init){.kind = WEFT_INIT_ZERO});
    }
    const weft_attr_linear attr = {.act = WEFT_ACT_NONE};
    weft_graph_push(g, "%s.lora", node->scope);
    weft_value x =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){u->r.map[node->in[0].id], pair[0]}, 2, &attr);
    x = weft_affine(g, x, u->t->alpha / (double)u->t->rank, 0);
    x = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, pair[1]}, 2, &attr);
    u->r.map[node->out[0].id] = weft_add(g, y, x);
    weft_graph_pop(g);
}

static void find_weights(tuner *u)
{
    const weft_graph *g = u->r.from;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
            const weft_node *node = weft_graph_node(g, n);
            for (int i = 0; i < node->in_count; i++)
                if (weft_value_ok(node->in[i]) && (node->op == WEFT_OP_LINEAR && i == 1) == !pass)
                    u->multiplies[node->in[i].id] = !pass;
        }
}

static void rewrite(tuner *u)
{
    char module[512];
    for (int32_t n = 0; n < weft_graph_node_count(u->r.from); n++) {
        const weft_node *node = weft_graph_node(u->r.from, n);
        if (weft_graph_check(u->r.to) != WEFT_OK)
            return;
        if (node->op == WEFT_OP_PARAM) {
            put_param(u, n);
            continue;
        }
        weft_rewrite_node(&u->r, n, NULL);
        if (u->t->rank && module_of(u->r.from, u->t, node, module, sizeof module) &&
            any_fits(&u->t->targets, module, fits_linear))
            emit_lora(u, n, module);
    }
}

/* Rejects a model whose parameters are all frozen. */
static weft_status check_left(const weft_trainable *t, weft_graph *g)
{
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    if (t->others_trained)
        return WEFT_OK;
    for (int i = 0; param && i < count; i++)
        if (own_name(g, t, param[i]))
            return WEFT_OK;
    return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "freeze"),
                      "all parameters of the model are frozen; leave some to train");
}

weft_status weft_pass_trainable(const weft_graph *g, const weft_trainable *trainable,
                                weft_graph **out)
{
    tuner u = {.t = trainable};
    WEFT_TRY(weft_graph_check(g));
    WEFT_TRY(check(g, trainable));
    WEFT_TRY(weft_rewrite_begin(g, &u.r));
    const int64_t values = weft_graph_value_count(g);
    u.pair = weft_calloc(values + 1, sizeof *u.pair);
    u.multiplies = weft_alloc(values + 1);
    if (!u.pair || !u.multiplies) {
        weft_free(u.pair);
        weft_free(u.multiplies);
        weft_rewrite_abandon(&u.r);
        return weft_no_memory("pass tune");
    }
    find_weights(&u);
    for (int64_t v = 0; v < values; v++)
        u.pair[v][0] = u.pair[v][1] = WEFT_NONE;
    rewrite(&u);
    weft_free(u.pair);
    weft_free(u.multiplies);
    WEFT_TRY(weft_rewrite_finish(&u.r, "tune", out));
    const weft_status_code status = check_left(trainable, *out);
    if (status != WEFT_OK) {
        weft_graph_free(*out);
        *out = NULL;
    }
    return status;
}
