#include "model/key_mapping.h"

#include "base/config.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "model/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

enum { MOST_NUMBERS = 4 }; /* numbers matched by '#' in a rule */

typedef struct numbers {
    const char *at[MOST_NUMBERS];
    int length[MOST_NUMBERS], count;
} numbers;

/* Returns the length of the match of `from` at `at`, 0 if none. '#' matches digits, which are
 * recorded. */
static size_t match(const char *at, const char *from, numbers *n)
{
    const char *p = at;
    for (n->count = 0; *from; from++) {
        if (*from != '#') {
            if (*p++ != *from)
                return 0;
            continue;
        }
        const int length = (int)strspn(p, "0123456789");
        if (!length || n->count == MOST_NUMBERS)
            return 0;
        n->at[n->count] = p;
        n->length[n->count++] = length;
        p += length;
    }
    return (size_t)(p - at);
}

/* Writes `to` to out, with the recorded numbers in place of '#'. */
static bool fill(const char *to, const numbers *n, char *out, size_t size)
{
    size_t length = 0;
    for (int i = 0; *to; to++) {
        const bool number = *to == '#' && i < n->count;
        const size_t more = number ? (size_t)n->length[i] : 1;
        if (length + more >= size)
            return false;
        memcpy(out + length, number ? n->at[i] : to, more);
        i += number;
        length += more;
    }
    out[length] = 0;
    return true;
}

/* Replaces each `from` that is bounded by dots or by the ends of the name. A dot at an end of
 * `from` is itself a bound. */
static bool replace_all(char *name, size_t size, const char *from, const char *to)
{
    char with[300];
    numbers n;
    const char last = from[strlen(from) - 1];
    for (char *at = name; *at;) {
        const bool begins = at == name || at[-1] == '.' || from[0] == '.';
        const size_t a = begins ? match(at, from, &n) : 0;
        if (!a || (at[a] && at[a] != '.' && last != '.')) {
            at++;
            continue;
        }
        if (!fill(to, &n, with, sizeof with) || strlen(name) - a + strlen(with) >= size)
            return false;
        const size_t b = strlen(with);
        memmove(at + b, at + a, strlen(at + a) + 1);
        memcpy(at, with, b);
        at += b;
    }
    return true;
}

bool weft_key_mapping_rename(const weft_key_mapping *d, const char *name, char *out, size_t size)
{
    if (strlen(name) >= size)
        return false;
    strcpy(out, name);
    for (int i = 0; i < d->rules; i++)
        if (!replace_all(out, size, d->rule[i].foreign_name, d->rule[i].name))
            return false;
    return true;
}

static bool take_mark(char *name, char sign)
{
    char *mark = strchr(name, sign);
    if (mark)
        memmove(mark, mark + 1, strlen(mark));
    return mark != NULL;
}

bool weft_key_mapping_take_swapped(char *name)
{
    return take_mark(name, '~');
}

bool weft_key_mapping_take_interleaved(char *name)
{
    return take_mark(name, '%');
}

bool weft_key_mapping_take_copies(char *name)
{
    return take_mark(name, '&');
}

/* Writes alternative `index` of "before{a,b,c}after" to out. `pair` has the two brackets. */
static bool choose(const char *name, const char *pair, int index, char *out, size_t size)
{
    const char *open = strchr(name, pair[0]), *close = strchr(name, pair[1]), *end = NULL;
    if (!open || !close)
        return index == 0 && snprintf(out, size, "%s", name) < (int)size;
    const char *at = open + 1;
    for (int i = 0; at < close; i++, at = end + 1) {
        end = memchr(at, ',', (size_t)(close - at));
        end = end ? end : close;
        if (i == index)
            return snprintf(out, size, "%.*s%.*s%s", (int)(open - name), name, (int)(end - at), at,
                            close + 1) < (int)size;
    }
    return false;
}

bool weft_key_mapping_part(const char *name, int index, char *out, size_t size)
{
    return choose(name, "{}", index, out, size);
}

static const char *const prefixes[] = {
    "", "model.diffusion_model.", "diffusion_model.", "net.", "model.model.", "vae.",
    "first_stage_model.", "transformer.", "audio_vae.", "vocoder.", "module.",
    /* generators of Self-Forcing and CausVid, also as FSDP saves them: denoisers only */
    "model.", "model._fsdp_wrapped_module."};
enum { OF_DENOISERS = 2 };

/* Returns true if the file has the tensors that mark the mapping, with the prefix. */
static bool has_markers(const weft_key_mapping *mapping, const char *prefix,
                        bool (*has)(void *user, const char *name), void *user)
{
    const char *const marker[] = {mapping->marker, mapping->also};
    for (int i = 0; i < WEFT_COUNT(marker); i++) {
        char name[300];
        snprintf(name, sizeof name, "%s%s", prefix, marker[i] ? marker[i] : "");
        if (marker[i] && !has(user, name))
            return false;
    }
    return true;
}

static bool find_mapping(const weft_family *f, bool (*has)(void *user, const char *name),
                         void *user, const weft_key_mapping **mapping, const char **prefix)
{
    const int count = WEFT_COUNT(prefixes) - (f->role == WEFT_ROLE_DENOISER ? 0 : OF_DENOISERS);
    for (int d = 0; d < f->mappings; d++)
        for (int p = 0; p < count; p++) {
            *mapping = &f->mapping[d];
            *prefix = prefixes[p];
            if (has_markers(*mapping, *prefix, has, user))
                return true;
        }
    return false;
}

const weft_family *weft_key_mapping_detect(bool (*has)(void *user, const char *name), void *user,
                                           const weft_key_mapping **mapping, const char **prefix)
{
    for (int i = 0; weft_families[i]; i++)
        if (find_mapping(weft_families[i], has, user, mapping, prefix))
            return weft_families[i];
    return NULL;
}

/* ---- tensors -------------------------------------------------------------------------------- */

typedef struct adoption {
    const weft_graph *graph;
    const char *scope; /* prefix of names in the graph */
    const weft_key_mapping *mapping;
    const char *prefix; /* prefix of names in the file */
} adoption;

static bool has_tensor(void *file, const char *name)
{
    return weft_tensors_find(file, name) != NULL;
}

/* Returns the shape of the model's parameter of this name. NULL: none. */
static const weft_shape *shape_of(const adoption *a, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s%s", a->scope, name);
    const weft_value v = weft_graph_find(a->graph, full);
    return weft_value_ok(v) ? &weft_value_get(a->graph, v)->shape : NULL;
}

void weft_key_mapping_choose(const weft_graph *g, const char *scope, char *name, size_t size)
{
    const adoption a = {.graph = g, .scope = scope};
    char first[600], tried[600];
    if (!strchr(name, '[') || !choose(name, "[]", 0, first, sizeof first))
        return;
    for (int i = 1; !shape_of(&a, first) && choose(name, "[]", i, tried, sizeof tried); i++)
        if (shape_of(&a, tried))
            strcpy(first, tried);
    snprintf(name, size, "%s", first);
}

/* Returns true if the shapes differ only in dims of 1. */
static bool same_but_ones(const weft_stored_tensor *t, const weft_shape *s)
{
    int a = 0, b = 0;
    while (a < t->rank || b < s->rank) {
        if (a < t->rank && t->dim[a] == 1)
            a++;
        else if (b < s->rank && s->dim[b] == 1)
            b++;
        else if (a < t->rank && b < s->rank && t->dim[a] == s->dim[b])
            a++, b++;
        else
            return false;
    }
    return true;
}

static weft_status add(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                       const char *name, int64_t row, int64_t rows, bool turned)
{
    const weft_shape *shape = shape_of(a, name);
    WEFT_TRY(weft_tensors_view(to, t, name, row, rows, turned));
    const weft_stored_tensor *made = weft_tensors_at(to, weft_tensors_count(to) - 1);
    if (shape && same_but_ones(made, shape))
        weft_tensors_reshape(to, shape->rank, shape->dim);
    return WEFT_OK;
}

/* Splits a tensor that has the first halves of the rows of all parts, then the second halves. */
static weft_status add_interleaved(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                                   const char *names)
{
    char name[700];
    int64_t all = 0, half = 0, at = 0;
    for (int i = 0; weft_key_mapping_part(names, i, name, sizeof name); i++) {
        const weft_shape *shape = shape_of(a, name);
        if (!shape)
            return WEFT_OK;
        all += shape->rank > 0 ? shape->dim[0] : 0;
    }
    if (t->rank < 1 || t->dim[0] != all)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = t->file, .key = t->name),
                          "the tensor has %" PRId64
                          " rows; its parts in the model (%s) have another number of rows",
                          t->rank > 0 ? t->dim[0] : 0, names);
    for (int i = 0; weft_key_mapping_part(names, i, name, sizeof name); i++, at += half) {
        half = shape_of(a, name)->dim[0] / 2;
        WEFT_TRY(weft_tensors_view(to, t, name, 0, t->dim[0], false));
        WEFT_TRY(weft_tensors_part(to, at, all / 2 + at, half));
    }
    return WEFT_OK;
}

/* Splits a fused tensor. Each part has as many rows as the model's parameter. */
static weft_status add_cut(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                           const char *names)
{
    char name[700];
    int64_t row = 0;
    for (int i = 0; weft_key_mapping_part(names, i, name, sizeof name); i++) {
        const weft_shape *shape = shape_of(a, name);
        if (!shape)
            return WEFT_OK; /* tensor of a VAE half that this graph lacks */
        if (t->rank < 1 || row + shape->dim[0] > t->dim[0])
            break;
        WEFT_TRY(add(a, to, t, name, row, shape->dim[0], false));
        row += shape->dim[0];
    }
    return t->rank > 0 && row == t->dim[0]
               ? WEFT_OK
               : weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = t->file, .key = t->name),
                            "the tensor has %" PRId64
                            " rows; its parts in the model (%s) have another number of rows",
                            t->rank > 0 ? t->dim[0] : 0, names);
}

/* Adds a tensor under every name in braces. */
static weft_status add_copies(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                              const char *names)
{
    char name[700];
    for (int i = 0; weft_key_mapping_part(names, i, name, sizeof name); i++)
        WEFT_TRY(add(a, to, t, name, 0, t->rank > 0 ? t->dim[0] : 0, false));
    return WEFT_OK;
}

static bool is_unused(const adoption *a, const char *name)
{
    for (const char *const *part = a->mapping->unused; part && *part; part++)
        if (strstr(name, *part))
            return !shape_of(a, name);
    return false;
}

static weft_status adopt_tensor(void *user, const weft_stored_tensor *t, weft_tensors *to)
{
    const adoption *a = user;
    const size_t skip = strlen(a->prefix);
    char name[600];
    if (strncmp(t->name, a->prefix, skip) != 0)
        return WEFT_OK;
    if (!weft_key_mapping_rename(a->mapping, t->name + skip, name, sizeof name))
        return weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.file = t->file, .key = t->name),
                          "the name of this tensor is too long for the model");
    if (name[0] == '.' || !name[0]) /* the prefix was replaced by "" */
        return WEFT_OK;
    weft_key_mapping_choose(a->graph, a->scope, name, sizeof name);
    if (is_unused(a, name))
        return WEFT_OK;
    if (weft_key_mapping_take_interleaved(name))
        return add_interleaved(a, to, t, name);
    if (weft_key_mapping_take_copies(name))
        return add_copies(a, to, t, name);
    if (strchr(name, '{'))
        return add_cut(a, to, t, name);
    const bool turned = weft_key_mapping_take_swapped(name);
    return add(a, to, t, name, 0, t->rank > 0 ? t->dim[0] : 0, turned);
}

/* Sets the model's tensors that the foreign tensor `foreign->name` consists of. */

/* Returns the model's name for a foreign name. */
static bool read_as(const weft_key_mapping *d, const weft_graph *g, const char *scope,
                    weft_foreign_tensor *foreign)
{
    const adoption a = {.graph = g, .scope = scope, .mapping = d};
    char own_name[600];
    if (!weft_key_mapping_rename(d, foreign->name, own_name, sizeof own_name))
        return false;
    weft_key_mapping_choose(a.graph, a.scope, own_name, sizeof own_name);
    foreign->turned = weft_key_mapping_take_swapped(own_name);
    foreign->interleaved = weft_key_mapping_take_interleaved(own_name);
    foreign->copies = weft_key_mapping_take_copies(own_name);
    foreign->parts = 0;
    while (foreign->parts < WEFT_KEY_MAPPING_PARTS &&
           weft_key_mapping_part(own_name, foreign->parts, foreign->part[foreign->parts],
                                 sizeof foreign->part[0]))
        foreign->parts++;
    return foreign->parts > 0;
}

/* Inverts the rules from the last to the first. Each rule is inverted with one of its alternatives,
 * or skipped. Candidates must map to `name` and only to tensors of the model. Keeps the candidate
 * with most characters replaced, then the one that fuses most tensors. */
typedef struct undoing {
    const weft_key_mapping *mapping;
    const weft_graph *graph;
    const char *scope, *name;
    weft_foreign_tensor *best;
    int replaced; /* characters replaced in `best`; -1: none yet */
} undoing;

static bool is_param(const undoing *u, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s%s", u->scope, name);
    return weft_graph_knows(u->graph, full);
}

static void consider_candidate(undoing *u, const char *foreign_name, int replaced, int ones,
                               bool channels)
{
    weft_foreign_tensor t = {.ones = ones, .channels = channels};
    bool has = false;
    if (replaced < u->replaced ||
        snprintf(t.name, sizeof t.name, "%s", foreign_name) >= (int)sizeof t.name ||
        !read_as(u->mapping, u->graph, u->scope, &t) ||
        (replaced == u->replaced && t.parts <= u->best->parts))
        return;
    for (int i = 0; i < t.parts; i++) {
        has = has || !strcmp(t.part[i], u->name);
        if (!is_param(u, t.part[i]))
            return;
    }
    if (has) {
        *u->best = t;
        u->replaced = replaced;
    }
}

static void undo(undoing *u, int rule, const char *name, int replaced, int ones, bool channels)
{
    for (; rule >= u->mapping->spellings; rule--) {
        const weft_rename_rule *r = &u->mapping->rule[rule];
        char own_name[300], one[300], alternative[300], made[600];
        snprintf(own_name, sizeof own_name, "%s", r->name);
        weft_key_mapping_take_swapped(own_name);
        weft_key_mapping_take_interleaved(own_name);
        weft_key_mapping_take_copies(own_name);
        for (int i = 0; choose(own_name, "{}", i, one, sizeof one); i++)
            for (int k = 0; choose(one, "[]", k, alternative, sizeof alternative); k++) {
                snprintf(made, sizeof made, "%s", name);
                if (alternative[0] &&
                    replace_all(made, sizeof made, alternative, r->foreign_name) &&
                    strcmp(made, name) != 0)
                    undo(u, rule - 1, made, replaced + (int)strlen(alternative),
                         r->ones ? r->ones : ones, r->channels || channels);
            }
    }
    consider_candidate(u, name, replaced, ones, channels);
}

static bool find_foreign(const weft_key_mapping *d, const weft_graph *g, const char *scope,
                         const char *name, weft_foreign_tensor *foreign, int *replaced)
{
    undoing u = {d, g, scope, name, foreign, -1};
    undo(&u, d->rules - 1, name, 0, 0, false);
    *replaced = u.replaced;
    return u.replaced >= 0;
}

bool weft_key_mapping_foreign(const weft_key_mapping *d, const weft_graph *g, const char *scope,
                              const char *name, weft_foreign_tensor *foreign)
{
    int replaced;
    return find_foreign(d, g, scope, name, foreign, &replaced);
}

/* Counts the parameters whose name the key mapping leaves unchanged. */
static int64_t count_left(const weft_key_mapping *d, const weft_graph *g, const char *scope)
{
    int64_t left = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = node->op == WEFT_OP_PARAM ? weft_value_get(g, node->out[0])->name : "";
        char item[600];
        int replaced;
        weft_foreign_tensor foreign;
        if (node->op != WEFT_OP_PARAM || strncmp(name, scope, strlen(scope)))
            continue;
        weft_stack_item(name + strlen(scope), 0, item, sizeof item);
        left += !find_foreign(d, g, scope, item, &foreign, &replaced) || replaced == 0;
    }
    return left;
}

const weft_key_mapping *weft_key_mapping_named(const weft_family *family, const weft_graph *g,
                                               const char *scope, const char *word)
{
    const weft_key_mapping *best = NULL;
    int64_t least = 0;
    for (int i = 0; i < family->mappings; i++) {
        const weft_key_mapping *d = &family->mapping[i];
        if (strcmp(d->name, word) != 0)
            continue;
        const int64_t left = count_left(d, g, scope);
        if (!best || left < least) {
            best = d;
            least = left;
        }
    }
    return best;
}

/* Finds the file's tensor for the model's `name`. */
static const weft_stored_tensor *find_own(const adoption *a, const weft_tensors *file,
                                          const char *name);

/* Returns true if the file has every parameter of the graph, under another family's names. */
static bool has_all(const adoption *a, const weft_tensors *file)
{
    for (int32_t n = 0; n < weft_graph_node_count(a->graph); n++) {
        const weft_node *node = weft_graph_node(a->graph, n);
        char item[600];
        if (node->op != WEFT_OP_PARAM)
            continue;
        const char *name = weft_value_get(a->graph, node->out[0])->name;
        if (strncmp(name, a->scope, strlen(a->scope)) != 0)
            continue;
        weft_stack_item(name + strlen(a->scope), 0, item, sizeof item);
        if (!find_own(a, file, item))
            return false;
    }
    return true;
}

weft_status weft_key_mapping_adopt(const weft_family *family, const weft_graph *g,
                                   const char *prefix, weft_tensors *file)
{
    adoption a = {.graph = g, .scope = prefix};
    if (find_mapping(family, has_tensor, file, &a.mapping, &a.prefix))
        return weft_tensors_review(file, adopt_tensor, &a);
    const weft_family *other = weft_key_mapping_detect(has_tensor, file, &a.mapping, &a.prefix);
    /* a UMT5 of one layer has the names of T5 */
    if (other && other->role == family->role && has_all(&a, file))
        return weft_tensors_review(file, adopt_tensor, &a);
    if (other && other->role == family->role)
        return weft_error(WEFT_MSG_TENSOR_NAMES,
                          WEFT_AT(.file = weft_tensors_path(file), .value = other->class_name),
                          "the weights belong to a %s (%s names), but the model is a %s",
                          other->class_name, a.mapping->name, family->class_name);
    return WEFT_OK; /* missing tensors are reported by name later */
}

static bool begins_with(const char *name, const char *first, const char *second)
{
    const size_t length = strlen(first);
    return !strncmp(name, first, length) && !strncmp(name + length, second, strlen(second));
}

/* Adds the tensors of the companion's folder, if the graph has the companion's parameters and
 * the file has none. */
static weft_status join_companion(const weft_family *family, const weft_graph *g,
                                  const char *prefix, const char *path, weft_tensors *file)
{
    char first[100];
    weft_tensors *other;
    bool needs = false;
    if (!family->companion)
        return WEFT_OK;
    snprintf(first, sizeof first, "%.90s.", family->companion->folder);
    for (int32_t n = 0; n < weft_graph_node_count(g) && !needs; n++) {
        const weft_node *node = weft_graph_node(g, n);
        needs = node->op == WEFT_OP_PARAM &&
                begins_with(weft_value_get(g, node->out[0])->name, prefix, first);
    }
    for (int64_t i = 0; i < weft_tensors_count(file) && needs; i++)
        needs = !begins_with(weft_tensors_at(file, i)->name, "", first);
    char *folder = needs ? weft_model_companion_folder(family, path) : NULL;
    if (!folder)
        return WEFT_OK; /* missing tensors are reported by name later */
    const weft_status_code status = weft_tensors_open(folder, &other);
    weft_free(folder);
    WEFT_TRY(status);
    return weft_tensors_join(file, first, other);
}

weft_status weft_key_mapping_open(const weft_family *family, const weft_graph *g,
                                  const char *prefix, const char *path, weft_tensors **file)
{
    weft_tensors *opened;
    WEFT_TRY(weft_tensors_open(path, &opened));
    weft_status_code status = WEFT_OK;
    WEFT_GO(join_companion(family, g, prefix, path, opened));
    WEFT_GO(weft_key_mapping_adopt(family, g, prefix, opened));
    *file = opened;
    return WEFT_OK;
out:
    weft_tensors_close(opened);
    return status;
}

static const weft_stored_tensor *find_own(const adoption *a, const weft_tensors *file,
                                          const char *name)
{
    const size_t skip = strlen(a->prefix);
    char own[600];
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        if (!strncmp(t->name, a->prefix, skip) &&
            weft_key_mapping_rename(a->mapping, t->name + skip, own, sizeof own) &&
            !strcmp(own, name))
            return t;
    }
    return NULL;
}

static weft_status take_statistics(const adoption *a, weft_tensors *file, weft_model *model)
{
    const weft_stored_tensor *mean = find_own(a, file, "latents_mean"),
                             *variance = find_own(a, file, "latents_variance"),
                             *deviation = variance ? variance : find_own(a, file, "latents_std");
    weft_statistics *of = weft_model_statistics(model);
    const bool audio = model->family->role == WEFT_ROLE_AUDIO_AUTOENCODER;
    const int64_t own = weft_model_grid(model).channels;
    float values[2][WEFT_MAX_STATISTICS];
    if (!mean || !deviation)
        return WEFT_OK;
    /* audio: of every mel bin, with the bins of a channel together */
    const bool of_bins = audio && mean->count % own == 0 && mean->count <= WEFT_MAX_STATISTICS;
    const int64_t channels = of_bins ? mean->count : own;
    if (mean->count != channels || deviation->count != channels)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = mean->file, .key = mean->name, WEFT_NUMBER(mean->count)),
                          "%" PRId64 " values here and %" PRId64
                          " in \"%s\"; the model has %" PRId64 " latent channels",
                          mean->count, deviation->count, deviation->name, channels);
    weft_tensor_to_f32(mean, values[0]);
    weft_tensor_to_f32(deviation, values[1]);
    for (int64_t i = 0; i < channels; i++) {
        if (variance)
            values[1][i] = sqrtf(values[1][i] + (float)of->variance_epsilon);
        if (!(values[1][i] > 0))
            return weft_error(
                WEFT_MSG_MODEL_CONFIG,
                WEFT_AT(.file = deviation->file, .key = deviation->name, WEFT_NUMBER(values[1][i])),
                "the deviation of channel %" PRId64 " is %g, not above 0", i, (double)values[1][i]);
        of->mean[i] = (double)values[0][i];
        of->deviation[i] = (double)values[1][i];
    }
    if (of_bins)
        of->count[0] = of->count[1] = channels;
    return WEFT_OK;
}

weft_status weft_key_mapping_statistics(const char *path, weft_model *model)
{
    weft_tensors *file;
    adoption a = {.scope = ""};
    const weft_status_code opened = weft_tensors_open(path, &file);
    if (opened == WEFT_E_NOT_FOUND) /* reported where weights are needed */
        return WEFT_OK;
    WEFT_TRY(opened);
    const weft_status_code status =
        find_mapping(model->family, has_tensor, file, &a.mapping, &a.prefix)
            ? take_statistics(&a, file, model)
            : WEFT_OK;
    weft_tensors_close(file);
    return status;
}
