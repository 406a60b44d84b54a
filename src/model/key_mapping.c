#include "model/dialect.h"

#include "base/config.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

enum { MOST_NUMBERS = 4 }; /* '#' of a rule */

typedef struct numbers {
    const char *at[MOST_NUMBERS];
    int length[MOST_NUMBERS], count;
} numbers;

/* How long what `from` matches at `at` is, 0: it does not; '#' matches digits, which are kept. */
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

/* `to`, with the numbers where '#' stands, into out. */
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

/* Replaces each `from` that stands between dots or ends by `to`; a dot at an end of `from` is one
 * of those. */
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

bool weft_dialect_rename(const weft_dialect *d, const char *name, char *out, size_t size)
{
    if (strlen(name) >= size)
        return false;
    strcpy(out, name);
    for (int i = 0; i < d->rules; i++)
        if (!replace_all(out, size, d->rule[i].theirs, d->rule[i].ours))
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

bool weft_dialect_turned(char *name)
{
    return take_mark(name, '~');
}

bool weft_dialect_in_turn(char *name)
{
    return take_mark(name, '%');
}

/* Alternative `index` of "before{a,b,c}behind", the brackets being `pair`, into out. */
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

bool weft_dialect_part(const char *name, int index, char *out, size_t size)
{
    return choose(name, "{}", index, out, size);
}

static const char *const prefixes[] = {
    "",     "model.diffusion_model.", "diffusion_model.", "net.", "model.model.",
    "vae.", "first_stage_model.",     "transformer."};

static bool find_dialect(const weft_family *f, bool (*has)(void *user, const char *name),
                         void *user, const weft_dialect **dialect, const char **prefix)
{
    for (int d = 0; d < f->dialects; d++)
        for (int p = 0; p < WEFT_COUNT(prefixes); p++) {
            char name[300];
            *dialect = &f->dialect[d];
            *prefix = prefixes[p];
            snprintf(name, sizeof name, "%s%s", *prefix, (*dialect)->marker);
            if (has(user, name))
                return true;
        }
    return false;
}

const weft_family *weft_dialect_detect(bool (*has)(void *user, const char *name), void *user,
                                       const weft_dialect **dialect, const char **prefix)
{
    for (int i = 0; weft_families[i]; i++)
        if (find_dialect(weft_families[i], has, user, dialect, prefix))
            return weft_families[i];
    return NULL;
}

/* ---- tensors -------------------------------------------------------------------------------- */

typedef struct adoption {
    const weft_graph *graph;
    const char *scope; /* before names in the graph */
    const weft_dialect *dialect;
    const char *prefix; /* before names in the file */
} adoption;

static bool has_tensor(void *file, const char *name)
{
    return weft_tensors_find(file, name) != NULL;
}

/* Of the model's param of that name; NULL: it has none. */
static const weft_shape *shape_of(const adoption *a, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s%s", a->scope, name);
    const weft_value v = weft_graph_find(a->graph, full);
    return weft_value_ok(v) ? &weft_value_get(a->graph, v)->shape : NULL;
}

/* "before[a,b]behind" becomes the alternative that the model has a param of; none: the first. */
static void settle(const adoption *a, char *name, size_t size)
{
    char first[600], tried[600];
    if (!strchr(name, '[') || !choose(name, "[]", 0, first, sizeof first))
        return;
    for (int i = 1; !shape_of(a, first) && choose(name, "[]", i, tried, sizeof tried); i++)
        if (shape_of(a, tried))
            strcpy(first, tried);
    snprintf(name, size, "%s", first);
}

/* The same elements, but for dims of 1. */
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

/* The first halves of the rows of all parts, then the second ones. */
static weft_status add_halves(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                              const char *names)
{
    char name[700];
    int64_t all = 0, half = 0, at = 0;
    for (int i = 0; weft_dialect_part(names, i, name, sizeof name); i++) {
        const weft_shape *shape = shape_of(a, name);
        if (!shape)
            return WEFT_OK;
        all += shape->rank > 0 ? shape->dim[0] : 0;
    }
    if (t->rank < 1 || t->dim[0] != all)
        return weft_fail(WEFT_E_SHAPE,
                         "%s: \"%s\" has %lld rows, its parts in the model (%s) other than these",
                         t->file, t->name, (long long)(t->rank > 0 ? t->dim[0] : 0), names);
    for (int i = 0; weft_dialect_part(names, i, name, sizeof name); i++, at += half) {
        half = shape_of(a, name)->dim[0] / 2;
        WEFT_TRY(weft_tensors_view(to, t, name, 0, t->dim[0], false));
        WEFT_TRY(weft_tensors_part(to, at, all / 2 + at, half));
    }
    return WEFT_OK;
}

/* A fused tensor: the rows of each part are those of the model's param. */
static weft_status add_cut(const adoption *a, weft_tensors *to, const weft_stored_tensor *t,
                           const char *names)
{
    char name[700];
    int64_t row = 0;
    for (int i = 0; weft_dialect_part(names, i, name, sizeof name); i++) {
        const weft_shape *shape = shape_of(a, name);
        if (!shape)
            return WEFT_OK; /* of a half that this graph does not have */
        if (t->rank < 1 || row + shape->dim[0] > t->dim[0])
            break;
        WEFT_TRY(add(a, to, t, name, row, shape->dim[0], false));
        row += shape->dim[0];
    }
    return t->rank > 0 && row == t->dim[0]
               ? WEFT_OK
               : weft_fail(WEFT_E_SHAPE,
                           "%s: \"%s\" has %lld rows, its parts in the model (%s) other than these",
                           t->file, t->name, (long long)(t->rank > 0 ? t->dim[0] : 0), names);
}

static weft_status adopt_tensor(void *user, const weft_stored_tensor *t, weft_tensors *to)
{
    const adoption *a = user;
    const size_t skip = strlen(a->prefix);
    char name[600];
    if (strncmp(t->name, a->prefix, skip) != 0)
        return WEFT_OK;
    if (!weft_dialect_rename(a->dialect, t->name + skip, name, sizeof name))
        return weft_fail(WEFT_E_FORMAT, "%s: too long a name: %.80s", t->file, t->name);
    if (name[0] == '.' || !name[0]) /* its beginning became "" */
        return WEFT_OK;
    settle(a, name, sizeof name);
    if (weft_dialect_in_turn(name))
        return add_halves(a, to, t, name);
    if (strchr(name, '{'))
        return add_cut(a, to, t, name);
    const bool turned = weft_dialect_turned(name);
    return add(a, to, t, name, 0, t->rank > 0 ? t->dim[0] : 0, turned);
}

/* ---- the other way -------------------------------------------------------------------------- */

/* What `theirs` is read as. */
static bool read_as(const weft_dialect *d, const weft_graph *g, const char *scope,
                    weft_their_tensor *theirs)
{
    const adoption a = {.graph = g, .scope = scope, .dialect = d};
    char ours[600];
    if (!weft_dialect_rename(d, theirs->name, ours, sizeof ours))
        return false;
    settle(&a, ours, sizeof ours);
    theirs->turned = weft_dialect_turned(ours);
    theirs->in_turn = weft_dialect_in_turn(ours);
    theirs->parts = 0;
    while (
        theirs->parts < WEFT_DIALECT_PARTS &&
        weft_dialect_part(ours, theirs->parts, theirs->part[theirs->parts], sizeof theirs->part[0]))
        theirs->parts++;
    return theirs->parts > 0;
}

/* Rules undone from the last to the first: each is, by one of its alternatives, or is not. Of the
 * names that are read as `name`, and as nothing that the model does not have, the one for which
 * most characters were replaced is kept, then the one that fuses most. */
typedef struct undoing {
    const weft_dialect *dialect;
    const weft_graph *graph;
    const char *scope, *name;
    weft_their_tensor *best;
    int replaced; /* for `best`; -1: none yet */
} undoing;

static bool is_param(const undoing *u, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s%s", u->scope, name);
    return weft_graph_knows(u->graph, full);
}

static void judge(undoing *u, const char *theirs, int replaced, int ones)
{
    weft_their_tensor t = {.ones = ones};
    bool has = false;
    if (replaced < u->replaced ||
        snprintf(t.name, sizeof t.name, "%s", theirs) >= (int)sizeof t.name ||
        !read_as(u->dialect, u->graph, u->scope, &t) ||
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

static void undo(undoing *u, int rule, const char *name, int replaced, int ones)
{
    for (; rule >= u->dialect->spellings; rule--) {
        const weft_rename_rule *r = &u->dialect->rule[rule];
        char ours[300], one[300], alternative[300], made[600];
        snprintf(ours, sizeof ours, "%s", r->ours);
        weft_dialect_turned(ours);
        weft_dialect_in_turn(ours);
        for (int i = 0; choose(ours, "{}", i, one, sizeof one); i++)
            for (int k = 0; choose(one, "[]", k, alternative, sizeof alternative); k++) {
                snprintf(made, sizeof made, "%s", name);
                if (alternative[0] && replace_all(made, sizeof made, alternative, r->theirs) &&
                    strcmp(made, name) != 0)
                    undo(u, rule - 1, made, replaced + (int)strlen(alternative),
                         r->ones ? r->ones : ones);
            }
    }
    judge(u, name, replaced, ones);
}

static bool find_theirs(const weft_dialect *d, const weft_graph *g, const char *scope,
                        const char *name, weft_their_tensor *theirs, int *replaced)
{
    undoing u = {d, g, scope, name, theirs, -1};
    undo(&u, d->rules - 1, name, 0, 0);
    *replaced = u.replaced;
    return u.replaced >= 0;
}

bool weft_dialect_theirs(const weft_dialect *d, const weft_graph *g, const char *scope,
                         const char *name, weft_their_tensor *theirs)
{
    int replaced;
    return find_theirs(d, g, scope, name, theirs, &replaced);
}

/* Parameters whose name is the model's own in the dialect, too. */
static int64_t count_left(const weft_dialect *d, const weft_graph *g, const char *scope)
{
    int64_t left = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = node->op == WEFT_OP_PARAM ? weft_value_get(g, node->out[0])->name : "";
        char item[600];
        int replaced;
        weft_their_tensor theirs;
        if (node->op != WEFT_OP_PARAM || strncmp(name, scope, strlen(scope)))
            continue;
        weft_stack_item(name + strlen(scope), 0, item, sizeof item);
        left += !find_theirs(d, g, scope, item, &theirs, &replaced) || replaced == 0;
    }
    return left;
}

const weft_dialect *weft_dialect_named(const weft_family *family, const weft_graph *g,
                                       const char *scope, const char *word)
{
    const weft_dialect *best = NULL;
    int64_t least = 0;
    for (int i = 0; i < family->dialects; i++) {
        const weft_dialect *d = &family->dialect[i];
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

weft_status weft_dialect_adopt(const weft_family *family, const weft_graph *g, const char *prefix,
                               weft_tensors *file)
{
    adoption a = {.graph = g, .scope = prefix};
    if (find_dialect(family, has_tensor, file, &a.dialect, &a.prefix))
        return weft_tensors_review(file, adopt_tensor, &a);
    const weft_family *other = weft_dialect_detect(has_tensor, file, &a.dialect, &a.prefix);
    if (other && other->role == family->role)
        return weft_fail(WEFT_E_FORMAT, "%s: the weights of a %s (%s names), and the model is a %s",
                         weft_tensors_path(file), other->class_name, a.dialect->name,
                         family->class_name);
    return WEFT_OK; /* what is missing is told by name */
}

weft_status weft_dialect_open(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_tensors **file)
{
    weft_tensors *opened;
    WEFT_TRY(weft_tensors_open(path, &opened));
    const weft_status_code status = weft_dialect_adopt(family, g, prefix, opened);
    if (status != WEFT_OK)
        weft_tensors_close(opened);
    else
        *file = opened;
    return status;
}

/* The file's tensor that is called `name` here. */
static const weft_stored_tensor *find_own(const adoption *a, const weft_tensors *file,
                                          const char *name)
{
    const size_t skip = strlen(a->prefix);
    char own[600];
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        if (!strncmp(t->name, a->prefix, skip) &&
            weft_dialect_rename(a->dialect, t->name + skip, own, sizeof own) && !strcmp(own, name))
            return t;
    }
    return NULL;
}

static weft_status take_statistics(const adoption *a, weft_tensors *file, weft_model *model)
{
    const weft_stored_tensor *mean = find_own(a, file, "latents_mean"),
                             *deviation = find_own(a, file, "latents_std");
    weft_statistics *of = weft_model_statistics(model);
    const int64_t channels = weft_model_grid(model).channels;
    float values[2][WEFT_MAX_STATISTICS];
    if (!mean || !deviation)
        return WEFT_OK;
    if (mean->count != channels || deviation->count != channels)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"%s\" has %lld numbers and \"%s\" %lld; the model has %lld latent "
                         "channels",
                         mean->file, mean->name, (long long)mean->count, deviation->name,
                         (long long)deviation->count, (long long)channels);
    weft_tensor_to_f32(mean, values[0]);
    weft_tensor_to_f32(deviation, values[1]);
    for (int64_t i = 0; i < channels; i++) {
        if (!(values[1][i] > 0))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" holds %g; a deviation is above 0",
                             deviation->file, deviation->name, (double)values[1][i]);
        of->mean[i] = (double)values[0][i];
        of->deviation[i] = (double)values[1][i];
    }
    return WEFT_OK;
}

weft_status weft_dialect_statistics(const char *path, weft_model *model)
{
    weft_tensors *file;
    adoption a = {.scope = ""};
    const weft_status_code opened = weft_tensors_open(path, &file);
    if (opened == WEFT_E_NOT_FOUND) /* told where weights are needed */
        return WEFT_OK;
    WEFT_TRY(opened);
    const weft_status_code status =
        find_dialect(model->family, has_tensor, file, &a.dialect, &a.prefix)
            ? take_statistics(&a, file, model)
            : WEFT_OK;
    weft_tensors_close(file);
    return status;
}
