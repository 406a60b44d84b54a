#include "prompt/captions.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "nn/nn.h"
#include "text/clean.h"

#include <stdio.h>
#include <string.h>

/* Of families that say nothing. */
static const weft_reading plain = {"text_encoder", "tokenizer", WEFT_PORT_TEXT,
                                   WEFT_PORT_TEXT_MASK};

const weft_reading *weft_captions_reading(const weft_model *denoiser, int r)
{
    return denoiser->family->readings ? &denoiser->family->reading[r] : &plain;
}

int weft_captions_needed(const weft_model *denoiser)
{
    return denoiser->family->readings ? denoiser->family->readings : 1;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool has_files(const char *folder)
{
    weft_names names = {0};
    bool found = false;
    if (!weft_path_is_dir(folder) || weft_list_dir(folder, false, &names) != WEFT_OK)
        return false;
    for (int64_t i = 0; i < names.count && !found; i++)
        found = !strcmp(names.name[i], "tokenizer.json") ||
                !strcmp(names.name[i], "spiece.model") || !strcmp(names.name[i], "vocab.json") ||
                !strcmp(names.name[i], "vocab.txt");
    weft_names_free(&names);
    return found;
}

/* What the config gives, else in the folder of the weights, else beside that. */
static weft_status find_tokenizer(const weft_reader_spec *spec, const weft_reading *reading,
                                  const char *where, char path[600])
{
    const char *given = spec->tokenizer;
    if (spec->model.family->tokens) {
        if (given && given[0])
            return weft_fail(WEFT_E_CONFIG, "%s: %s makes tokens itself; leave tokenizer out",
                             where, weft_model_class(&spec->model));
        return WEFT_OK;
    }
    if (given && given[0]) {
        if (snprintf(path, 600, "%s", given) < 600)
            return WEFT_OK;
        return weft_fail(WEFT_E_ARG, "%s: too long a path", given);
    }
    const char *folder = spec->folder ? spec->folder : "", *slash = strrchr(folder, '/');
    snprintf(path, 600, "%.500s", folder);
    if (folder[0] && has_files(path))
        return WEFT_OK;
    snprintf(path, 600, "%.*s/%s", slash ? (int)(slash - folder < 500 ? slash - folder : 500) : 1,
             slash ? folder : ".", reading->tokenizer);
    if (folder[0] && has_files(path))
        return WEFT_OK;
    return weft_fail(
        WEFT_E_NOT_FOUND,
        "%s: captions become tokens of %s by its tokenizer, and there is none in %s or "
        "beside it in %s; give tokenizer: its tokenizer.json, spiece.model, "
        "vocab.json or vocab.txt (or their folder), or take a WeftBytesEncoder",
        where, weft_model_class(&spec->model), folder[0] ? folder : "the config",
        reading->tokenizer);
}

/* Text tokens that the denoiser has places for; 0: any. */
static int64_t only_length(const weft_model *denoiser, weft_port port)
{
    const weft_grid grid = weft_model_grid(denoiser);
    const weft_model_size one = {1, 1, 1, 1, 1}, two = {1, 1, 1, 1, 2};
    if (port == WEFT_PORT_LATENTS || !weft_model_takes(denoiser, port))
        return 0;
    if (port == WEFT_PORT_TEXT && grid.text)
        return grid.text;
    const int64_t a = weft_model_shape(denoiser, &one, port).dim[1],
                  b = weft_model_shape(denoiser, &two, port).dim[1];
    return a == b ? a : 0;
}

/* Rows of the template before a text; bytes have none. */
static int64_t crop_of(const weft_reader *reader)
{
    return reader->model.family->tokens ? 0
           : reader->shown              ? reader->shown->crop
                                        : reader->reading->crop;
}

/* Tokens that are told of a text and of the picture beside it. */
static int64_t rows_of(const weft_reader *reader)
{
    return reader->told_picture + reader->told_text;
}

/* Those that the encoder reads: a picture is several. */
static int64_t places_of(const weft_reader *reader)
{
    return reader->length + (reader->shown ? reader->shown->patches - 1 : 0);
}

/* Whether the encoder is shown a picture, and one that the denoiser's row knows how to tell of. */
static weft_status find_shown(const weft_model *denoiser, const char *where, weft_reader *reader)
{
    const weft_text_shape text = weft_model_text(&reader->model);
    const weft_shown *shown = reader->reading->shown;
    const int64_t step = weft_model_given(denoiser).picture_step;
    if (!text.picture)
        return WEFT_OK;
    if (!shown || !step)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: %s reads the first frame beside the prompt, and this %s is told of "
                         "none; it takes an encoder of text alone",
                         where, weft_model_class(&reader->model), weft_model_class(denoiser));
    if (text.patches != shown->patches)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: to this %s a picture is %lld tokens, that of %s has %lld: it was "
                         "trained with another",
                         where, weft_model_class(&reader->model), (long long)text.patches,
                         weft_model_class(denoiser), (long long)shown->patches);
    reader->shown = shown;
    reader->picture = text.picture;
    reader->step = step;
    reader->told_picture = (shown->patches + step - 1) / step;
    return WEFT_OK;
}

static weft_status find_length(const weft_model *denoiser, const weft_reader_spec *spec,
                               const char *where, weft_reader *reader)
{
    const weft_reading *reading = reader->reading;
    const weft_text_shape text = weft_model_text(&reader->model);
    const int64_t only = only_length(denoiser, reading->text);
    if (reader->model.family->tokens) {
        if (spec->length && spec->length != text.length)
            return weft_fail(WEFT_E_CONFIG, "%s: length %lld: %s has %lld tokens, by its config",
                             where, (long long)spec->length, weft_model_class(&reader->model),
                             (long long)text.length);
        reader->length = reader->told_text = text.length;
        return WEFT_OK;
    }
    if (only && spec->length && spec->length != only)
        return weft_fail(WEFT_E_CONFIG, "%s: length %lld: %s has places for %lld tokens of text",
                         where, (long long)spec->length, weft_model_class(denoiser),
                         (long long)only);
    const int64_t wanted = spec->length ? spec->length
                           : only       ? only
                                        : reading->length,
                  crop = crop_of(reader), least = crop + (reader->shown ? reader->shown->cut : 0);
    reader->length = wanted ? wanted + crop : text.length;
    if (reader->length <= least)
        return weft_fail(
            WEFT_E_CONFIG, "%s: %s takes %lld tokens, the template around a text has %lld", where,
            weft_model_class(&reader->model), (long long)reader->length, (long long)least);
    reader->told_text = reader->length - least;
    return WEFT_OK;
}

/* Floats of a port in a packed caption. */
static int64_t floats_of(const weft_captions *c, weft_port port)
{
    int64_t floats = 0;
    for (int i = 0; i < c->tolds; i++)
        floats += c->told[i].port == port ? c->told[i].rows * c->told[i].width : 0;
    return floats;
}

static weft_told *add_told(weft_captions *c, weft_port port, int r, int64_t rows, int64_t width)
{
    weft_told *told = &c->told[c->tolds];
    *told = (weft_told){port, r, rows, width, c->floats, .inside = floats_of(c, port)};
    c->tolds++;
    c->floats += rows * width;
    return told;
}

/* The pooled vector of reader r, alone or behind those of others. */
static weft_status connect_pooled(const weft_model *denoiser, int r, const char *where,
                                  weft_captions *c)
{
    const weft_reader *reader = &c->reader[r];
    const weft_port port = reader->reading->pooled;
    const weft_text_shape text = weft_model_text(&reader->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t takes = weft_model_shape(denoiser, &one, port).dim[1],
                  there = floats_of(c, port) + text.pooled;
    bool last = true;
    for (int k = r + 1; k < weft_captions_needed(denoiser); k++)
        last = last && weft_captions_reading(denoiser, k)->pooled != port;
    if (!text.pooled || (last ? there != takes : there > takes))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s gives %s vector for a whole text, the transformer takes one of "
                         "%lld%s; CLIP's encoders give such",
                         where, weft_model_class(&reader->model), text.pooled ? "another" : "no",
                         (long long)takes,
                         there > text.pooled || !last ? " of several encoders together" : "");
    add_told(c, port, r, 1, text.pooled);
    return WEFT_OK;
}

static weft_status connect_layers(const weft_model *denoiser, int r, const char *where,
                                  weft_captions *c)
{
    const weft_reader *reader = &c->reader[r];
    const weft_text_shape text = weft_model_text(&reader->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const weft_shape shape = weft_model_shape(denoiser, &one, reader->reading->layers);
    if (text.layers < shape.dim[0] || text.width != shape.dim[3])
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s tells %lld layers of width %lld, the transformer takes %lld of "
                         "%lld; a Llama tells all of its",
                         where, weft_model_class(&reader->model), (long long)text.layers,
                         (long long)text.width, (long long)shape.dim[0], (long long)shape.dim[3]);
    add_told(c, reader->reading->layers, r, text.layers * reader->length, text.width)->layers =
        text.layers;
    return WEFT_OK;
}

/* What reader r tells, of the widths that the denoiser takes. */
static weft_status connect(const weft_model *denoiser, int r, const char *where, weft_captions *c)
{
    const weft_reader *reader = &c->reader[r];
    const weft_reading *reading = reader->reading;
    const weft_text_shape text = weft_model_text(&reader->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t rows = rows_of(reader);
    if (reading->text && weft_model_takes(denoiser, reading->text)) {
        const weft_shape shape = weft_model_shape(denoiser, &one, reading->text);
        if (shape.dim[2] != text.width)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: the text encoder gives width %lld, the transformer takes %lld",
                             where, (long long)text.width, (long long)shape.dim[2]);
        add_told(c, reading->text, r, rows, text.width);
    }
    if (reading->mask && weft_model_takes(denoiser, reading->mask) && reader->tokenizer[0])
        add_told(c, reading->mask, r, rows, 1);
    if (reading->pooled && weft_model_takes(denoiser, reading->pooled))
        WEFT_TRY(connect_pooled(denoiser, r, where, c));
    if (reading->layers && weft_model_takes(denoiser, reading->layers))
        WEFT_TRY(connect_layers(denoiser, r, where, c));
    return WEFT_OK;
}

weft_status weft_captions_read(const weft_model *denoiser, const weft_reader_spec *spec, int count,
                               const char *where, weft_captions *captions)
{
    weft_captions c = {0};
    const int needed = weft_captions_needed(denoiser);
    if (count != needed) {
        weft_buf which = {0};
        for (int r = 0; r < needed; r++) {
            const weft_reading *reading = weft_captions_reading(denoiser, r);
            weft_buf_printf(&which, "%s%s", r ? ", then " : "",
                            reading->text     ? "one for the text"
                            : reading->layers ? "one for the text by all its layers"
                                              : "one for its pooled vector");
        }
        const weft_status_code status =
            weft_fail(WEFT_E_CONFIG, "%s: %s takes %d text encoder%s (%s), %d are given", where,
                      weft_model_class(denoiser), needed, needed > 1 ? "s" : "",
                      which.data ? which.data : "", count);
        weft_buf_free(&which);
        return status;
    }
    c.readers = count;
    for (int r = 0; r < count; r++) {
        weft_reader *reader = &c.reader[r];
        reader->reading = weft_captions_reading(denoiser, r);
        reader->model = spec[r].model;
        WEFT_TRY(find_tokenizer(&spec[r], reader->reading, where, reader->tokenizer));
        WEFT_TRY(find_shown(denoiser, where, reader));
        WEFT_TRY(find_length(denoiser, &spec[r], where, reader));
        WEFT_TRY(connect(denoiser, r, where, &c));
    }
    *captions = c;
    return WEFT_OK;
}

const weft_told *weft_captions_told(const weft_captions *c, weft_port port)
{
    for (int i = 0; i < c->tolds; i++)
        if (c->told[i].port == port)
            return &c->told[i];
    return NULL;
}

int64_t weft_captions_length(const weft_captions *c)
{
    const weft_told *told = weft_captions_told(c, WEFT_PORT_TEXT);
    return told ? told->rows : 0;
}

/* ---- graphs --------------------------------------------------------------------------------- */

/* "batch.tokens", "batch.tokens_2" */
const char *weft_captions_input(const char *what, int r, char name[32])
{
    if (r == 0)
        snprintf(name, 32, "batch.%s", what);
    else
        snprintf(name, 32, "batch.%s_%d", what, r + 1);
    return name;
}

static weft_value numbers(weft_graph *g, const char *what, int r, int64_t batch, int64_t length)
{
    char name[32];
    return weft_input(g, weft_captions_input(what, r, name), WEFT_I32, WEFT_SHAPE(batch, length));
}

/* (B,N,L,D) to (N,B,L,D): samples come first in what is split among ranks, layers in the port. */
static weft_value layers_first(weft_graph *g, weft_value x)
{
    const weft_attr_permute swap = {.perm = {1, 0, 2, 3}};
    return weft_emit(g, WEFT_OP_PERMUTE, &x, 1, &swap);
}

void weft_captions_given(weft_graph *g, const weft_captions *c, const weft_model *denoiser,
                         const weft_model_size *size, weft_ports *ports)
{
    for (int i = 0; i < c->tolds; i++) {
        const weft_told *t = &c->told[i];
        char name[32];
        if (t->inside)
            continue;
        if (t->layers)
            ports->at[t->port] = layers_first(
                g, weft_input(g, weft_captions_input(weft_port_name(t->port), 0, name), WEFT_F32,
                              WEFT_SHAPE(size->batch, t->layers, t->rows / t->layers, t->width)));
        else
            ports->at[t->port] = weft_model_input(g, denoiser, size, t->port, "batch.");
    }
}

static bool tells(const weft_captions *c, weft_port port)
{
    return port && weft_captions_told(c, port) != NULL;
}

/* Whether the graph is given which tokens are text. */
static bool knows_real(const weft_captions *c, const weft_reader *r)
{
    return r->tokenizer[0] && (r->reading->zeros || tells(c, r->reading->mask));
}

/* Of what is said of all tokens, x (B,S,C): every step-th of the picture, then those of the text.
 * The cut is at another place in each: what stands before it, and what is `cut` further behind. */
static weft_value take_shown(weft_graph *g, const weft_reader *reader, int r, weft_value x)
{
    const weft_shown *s = reader->shown;
    const int64_t batch = weft_dim(g, x, 0), width = weft_dim(g, x, 2), step = reader->step,
                  padded = reader->told_picture * step, rest = padded - s->patches,
                  rows = reader->told_text, from = s->crop - 1 + s->patches;
    weft_value picture = weft_slice(g, x, 1, s->at, s->patches);
    if (rest) {
        const weft_value none = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, rest, width), 0);
        picture = weft_concat(g, (weft_value[]){picture, none}, 2, 1);
    }
    picture = weft_reshape(g, picture, WEFT_SHAPE(batch, reader->told_picture, step, width));
    picture = weft_reshape(g, weft_slice(g, picture, 2, 0, 1),
                           WEFT_SHAPE(batch, reader->told_picture, width));
    const weft_value uncut = weft_reshape(
        g, weft_cast(g, numbers(g, "uncut", r, batch, rows), WEFT_F32), WEFT_SHAPE(batch, rows, 1));
    const weft_value before = weft_mul(g, weft_slice(g, x, 1, from, rows), uncut),
                     behind = weft_mul(g, weft_slice(g, x, 1, from + s->cut, rows),
                                       weft_affine(g, uncut, -1, 1));
    return weft_concat(g, (weft_value[]){picture, weft_add(g, before, behind)}, 2, 1);
}

static void encode(weft_graph *g, const weft_captions *c, int r, int64_t batch, bool stays,
                   weft_ports *ports)
{
    const weft_reader *reader = &c->reader[r];
    const weft_reading *reading = reader->reading;
    const int64_t rows = rows_of(reader);
    weft_ports p = weft_ports_none();
    char name[32];
    p.at[WEFT_PORT_TOKENS] = numbers(g, "tokens", r, batch, places_of(reader));
    if (weft_model_has(&reader->model, WEFT_PORT_TEXT_MASK))
        p.at[WEFT_PORT_TEXT_MASK] = numbers(g, "seen", r, batch, places_of(reader));
    if (reader->shown)
        p.at[WEFT_PORT_VIDEO] =
            weft_input(g, weft_captions_input("picture", r, name), WEFT_F32,
                       WEFT_SHAPE(batch, 1, reader->picture, reader->picture, 3));
    weft_graph_push(g, "%s", reading->encoder);
    weft_model_call(g, &reader->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &p);
    weft_graph_pop(g);
    const weft_value real = knows_real(c, reader) ? numbers(g, "real", r, batch, rows) : WEFT_NONE;
    if (tells(c, reading->text)) {
        weft_value text = p.at[WEFT_PORT_TEXT];
        if (stays)
            text = weft_unary(g, WEFT_OP_STOP, text);
        if (reader->shown)
            text = take_shown(g, reader, r, text);
        else if (crop_of(reader))
            text = weft_slice(g, text, 1, crop_of(reader), rows);
        if (reading->zeros && weft_value_ok(real))
            text = weft_mul(
                g, text, weft_reshape(g, weft_cast(g, real, WEFT_F32), WEFT_SHAPE(batch, rows, 1)));
        ports->at[reading->text] = text;
    }
    if (tells(c, reading->mask))
        ports->at[reading->mask] = real;
    if (tells(c, reading->pooled)) {
        const weft_value pooled = stays ? weft_unary(g, WEFT_OP_STOP, p.at[WEFT_PORT_POOLED])
                                        : p.at[WEFT_PORT_POOLED],
                         before = ports->at[reading->pooled];
        ports->at[reading->pooled] =
            weft_value_ok(before) ? weft_concat(g, (weft_value[]){before, pooled}, 2, 1) : pooled;
    }
    if (tells(c, reading->layers)) /* (B,N,L,D) */
        ports->at[reading->layers] = stays
                                         ? weft_unary(g, WEFT_OP_STOP, p.at[WEFT_PORT_TEXT_LAYERS])
                                         : p.at[WEFT_PORT_TEXT_LAYERS];
}

void weft_captions_encode(weft_graph *g, const weft_captions *c, int64_t batch, uint32_t stays,
                          weft_ports *ports)
{
    for (int r = 0; r < c->readers; r++)
        encode(g, c, r, batch, stays >> r & 1, ports);
    for (int i = 0; i < c->tolds; i++)
        if (c->told[i].layers)
            ports->at[c->told[i].port] = layers_first(g, ports->at[c->told[i].port]);
}

weft_status weft_captions_takes_more(const weft_model *denoiser, int64_t width, const char *who)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    const char *name = weft_model_class(denoiser);
    if (!weft_model_takes(denoiser, WEFT_PORT_TEXT))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: its tokens go beside those of a text, and this %s reads none", who,
                         name);
    const int64_t only = only_length(denoiser, WEFT_PORT_TEXT),
                  takes = weft_model_shape(denoiser, &one, WEFT_PORT_TEXT).dim[2];
    if (only)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: its tokens go beside those of the text, and this %s has places for "
                         "%lld tokens of text and no others",
                         who, name, (long long)only);
    if (takes != width)
        return weft_fail(WEFT_E_CONFIG, "%s: its tokens are %lld wide, the text of this %s is %lld",
                         who, (long long)width, name, (long long)takes);
    return WEFT_OK;
}

void weft_captions_add(weft_graph *g, weft_value tokens, weft_ports *ports)
{
    weft_value *text = &ports->at[WEFT_PORT_TEXT], *mask = &ports->at[WEFT_PORT_TEXT_MASK];
    if (!weft_value_ok(tokens) || !weft_value_ok(*text))
        return;
    const int64_t *d = weft_value_get(g, tokens)->shape.dim;
    const weft_shape seen = WEFT_SHAPE(d[0], d[1]);
    *text = weft_concat(g, (weft_value[]){tokens, *text}, 2, 1);
    if (weft_value_ok(*mask)) {
        const weft_value all = weft_cast(g, weft_fill(g, WEFT_F32, seen, 1), WEFT_I32);
        *mask = weft_concat(g, (weft_value[]){all, *mask}, 2, 1);
    }
}

void weft_captions_build(weft_graph *g, const weft_captions *c, int r, int64_t batch)
{
    weft_ports ports = weft_ports_none();
    encode(g, c, r, batch, false, &ports);
    for (int i = 0; i < c->tolds; i++) {
        const weft_port port = c->told[i].port;
        if (c->told[i].reader != r)
            continue;
        weft_output(g, weft_port_name(port),
                    weft_port_dtype(port) == WEFT_F32 ? ports.at[port]
                                                      : weft_cast(g, ports.at[port], WEFT_F32));
    }
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* The token that a sign of the template is. */
static weft_status find_sign(const weft_reader *reader, const weft_tokenizer *t, const char *sign,
                             int32_t *token)
{
    int32_t *id = NULL;
    int64_t count;
    WEFT_TRY(weft_tokenizer_encode(t, sign, (int64_t)strlen(sign), 0, &id, &count, NULL));
    const bool known = count && !strcmp(weft_tokenizer_piece(t, id[count - 1]), sign);
    *token = known ? id[count - 1] : -1;
    weft_free(id);
    return known ? WEFT_OK
                 : weft_fail(WEFT_E_FORMAT,
                             "%s: it has no token \"%s\", which stands in what %s is asked: it is "
                             "another model's",
                             reader->tokenizer, sign, weft_model_class(&reader->model));
}

static weft_status find_signs(const weft_reader *reader, const weft_tokenizer *t, weft_signs *signs)
{
    const int64_t token = weft_model_text(&reader->model).picture_token;
    WEFT_TRY(find_sign(reader, t, reader->shown->image, &signs->image));
    WEFT_TRY(find_sign(reader, t, reader->shown->closes, &signs->closes));
    return signs->image == token
               ? WEFT_OK
               : weft_fail(WEFT_E_FORMAT,
                           "%s: \"%s\" is token %d, by its config %s puts the picture in the "
                           "places of %lld: it is another model's",
                           reader->tokenizer, reader->shown->image, signs->image,
                           weft_model_class(&reader->model), (long long)token);
}

weft_status weft_spelling_open(const weft_captions *c, weft_spelling *s)
{
    weft_status_code status = WEFT_OK;
    *s = (weft_spelling){0};
    for (int r = 0; r < c->readers && status == WEFT_OK; r++) {
        const weft_reader *reader = &c->reader[r];
        if (!reader->tokenizer[0])
            continue;
        status = weft_tokenizer_open(reader->tokenizer, &s->of[r]);
        json_t *config = status == WEFT_OK ? weft_model_write(&reader->model) : NULL;
        const json_t *inside = json_object_get(config, "text_config");
        const int64_t rows =
            json_integer_value(json_object_get(inside ? inside : config, "vocab_size"));
        if (status == WEFT_OK && rows < weft_tokenizer_size(s->of[r]))
            status = weft_fail(
                WEFT_E_CONFIG, "%s has %lld tokens, %s (%s) knows %lld: it is another model's",
                reader->tokenizer, (long long)weft_tokenizer_size(s->of[r]),
                reader->reading->encoder, weft_model_class(&reader->model), (long long)rows);
        json_decref(config);
        if (status == WEFT_OK && reader->shown)
            status = find_signs(reader, s->of[r], &s->sign[r]);
    }
    if (status != WEFT_OK)
        weft_spelling_close(s);
    return status;
}

void weft_spelling_close(weft_spelling *s)
{
    for (int r = 0; r < WEFT_MAX_READERS; r++)
        weft_tokenizer_close(s->of[r]);
    *s = (weft_spelling){0};
}

/* Ids of a text as reader r's tokenizer is given it; `most` 0: all of them. */
static weft_status ids_of(const weft_reader *reader, const weft_tokenizer *t, const char *text,
                          int64_t most, int32_t **id, int64_t *count, int64_t *cut)
{
    const weft_reading *reading = reader->reading;
    weft_buf whole = {0};
    const int64_t length = (int64_t)strlen(text);
    const char *before = reader->shown ? reader->shown->before : reading->before,
               *behind = reader->shown ? reader->shown->behind : reading->behind;
    weft_buf_printf(&whole, "%s", before ? before : "");
    weft_status_code status = WEFT_OK;
    if (reading->clean == WEFT_CLEAN_LOWER)
        weft_text_clean_lower(text, length, &whole);
    else if (reading->clean == WEFT_CLEAN_PROMPT)
        status = weft_text_clean_prompt(text, length, true, &whole);
    else
        weft_buf_append(&whole, text, length);
    weft_buf_printf(&whole, "%s", behind ? behind : "");
    if (status == WEFT_OK)
        status = weft_buf_check(&whole);
    if (status == WEFT_OK)
        status = weft_tokenizer_encode(t, whole.data, whole.len, most, id, count, cut);
    weft_buf_free(&whole);
    return status;
}

/* A row of a reader's inputs; NULL: not on this rank. */
typedef struct spelled {
    int32_t *tokens, *seen, *real, *uncut;
} spelled;

static int32_t *row_of(weft_find_input *find, void *user, const char *what, int r, int64_t row,
                       int64_t length)
{
    char name[32];
    const weft_tensor *to = find(user, weft_captions_input(what, r, name));
    return to ? (int32_t *)to->data + row * length : NULL;
}

/* Where the last token in front of what is kept behind the cut stands, plus one (weft_shown). */
static int64_t cut_end(const weft_reader *reader, const weft_signs *signs, const int32_t *id,
                       int64_t count)
{
    int64_t last = 0, closings = 0;
    for (int64_t i = 0; i < count; i++)
        if (id[i] == signs->closes) {
            last = i + 1;
            closings++;
        }
    return closings < reader->shown->closings ? reader->length : last;
}

/* The picture's token must stand where the template has it, and nowhere else. */
static weft_status check_shown(const weft_reader *reader, const weft_signs *signs,
                               const int32_t *id, int64_t count)
{
    const weft_shown *s = reader->shown;
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += id[i] == signs->image;
    if (count <= s->at || id[s->at] != signs->image)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"%s\" of the template is not its token %lld: it is another model's",
                         reader->tokenizer, s->image, (long long)s->at);
    return found == 1 ? WEFT_OK
                      : weft_fail(WEFT_E_ARG,
                                  "a prompt has \"%s\" in it, which %s takes for a picture: leave "
                                  "it out",
                                  s->image, weft_model_class(&reader->model));
}

/* As below, with the picture's tokens in the place of its one. */
static weft_status spell_shown(const weft_reader *reader, const weft_signs *signs, int32_t padding,
                               const int32_t *id, int64_t count, const spelled *to)
{
    const weft_shown *s = reader->shown;
    const int64_t more = s->patches - 1, end = cut_end(reader, signs, id, count) - s->cut;
    WEFT_TRY(check_shown(reader, signs, id, count));
    for (int64_t i = 0; i < places_of(reader); i++) {
        const int64_t from = i < s->at ? i : i > s->at + more ? i - more : s->at;
        if (to->tokens)
            to->tokens[i] = from < count ? id[from] : padding;
        if (to->seen)
            to->seen[i] = from < count;
    }
    for (int64_t i = 0; i < reader->told_picture && to->real; i++)
        to->real[i] = 1;
    for (int64_t i = 0; i < reader->told_text; i++) {
        const bool uncut = s->crop + i < end;
        if (to->uncut)
            to->uncut[i] = uncut;
        if (to->real)
            to->real[reader->told_picture + i] = s->crop + i + (uncut ? 0 : s->cut) < count;
    }
    return WEFT_OK;
}

void weft_captions_show(const weft_captions *c, int r, weft_find_input *find, void *user,
                        int64_t row, const float *picture)
{
    const weft_reader *reader = &c->reader[r];
    const int64_t each = reader->picture * reader->picture * 3;
    char name[32];
    const weft_tensor *to =
        reader->shown ? find(user, weft_captions_input("picture", r, name)) : NULL;
    if (to)
        memcpy((float *)to->data + row * each, picture, (size_t)each * sizeof *picture);
}

int64_t weft_captions_picture(const weft_captions *c)
{
    for (int r = 0; r < c->readers; r++)
        if (c->reader[r].shown)
            return c->reader[r].picture;
    return 0;
}

weft_status weft_captions_spell(const weft_captions *c, weft_spelling *s, int r,
                                weft_find_input *find, void *user, int64_t row, const char *text)
{
    const weft_reader *reader = &c->reader[r];
    const int64_t length = reader->length, crop = crop_of(reader);
    const spelled to = {
        .tokens = row_of(find, user, "tokens", r, row, places_of(reader)),
        .seen = row_of(find, user, "seen", r, row, places_of(reader)),
        .real = row_of(find, user, "real", r, row, rows_of(reader)),
        .uncut = reader->shown ? row_of(find, user, "uncut", r, row, reader->told_text) : NULL};
    int32_t *id = NULL;
    int64_t count, cut;
    s->texts += r == 0;
    if (!s->of[r]) {
        if (to.tokens)
            reader->model.family->tokens(reader->model.config, text, to.tokens);
        return WEFT_OK;
    }
    WEFT_TRY(ids_of(reader, s->of[r], text, length, &id, &count, &cut));
    const int32_t padding = weft_tokenizer_padding(s->of[r]);
    s->cut[r] += cut > 0;
    const weft_status_code status =
        reader->shown ? spell_shown(reader, &s->sign[r], padding, id, count, &to) : WEFT_OK;
    for (int64_t i = 0; i < length && !reader->shown; i++) {
        if (to.tokens)
            to.tokens[i] = i < count ? id[i] : padding;
        if (to.seen)
            to.seen[i] = i < count || reader->reading->sees_padding;
        if (to.real && i >= crop)
            to.real[i - crop] = i < count;
    }
    weft_free(id);
    return status;
}

void weft_captions_give(const weft_captions *c, weft_find_input *find, void *user, int64_t row,
                        const float *packed)
{
    for (int i = 0; i < c->tolds; i++) {
        const weft_told *told = &c->told[i];
        const int64_t count = told->rows * told->width, all = floats_of(c, told->port);
        char name[32];
        const weft_tensor *to =
            find(user, weft_captions_input(weft_port_name(told->port), 0, name));
        const float *from = packed + told->at;
        if (to && to->dtype == WEFT_F32)
            memcpy((float *)to->data + row * all + told->inside, from,
                   (size_t)count * sizeof *from);
        for (int64_t k = 0; to && to->dtype == WEFT_I32 && k < count; k++)
            ((int32_t *)to->data)[row * all + k] = from[k] != 0;
    }
}

void weft_captions_take(const weft_captions *c, int r, weft_program *program, int64_t count,
                        float *packed)
{
    for (int i = 0; i < c->tolds; i++) {
        const weft_told *told = &c->told[i];
        const int64_t each = told->rows * told->width;
        if (told->reader != r)
            continue;
        const float *from = weft_program_output(program, weft_port_name(told->port))->data;
        for (int64_t k = 0; k < count; k++)
            memcpy(packed + k * c->floats + told->at, from + k * each, (size_t)each * sizeof *from);
    }
}

void weft_captions_pair(const weft_captions *c, const float *prompt, float *negative)
{
    for (int i = 0; i < c->tolds; i++) {
        const weft_told *told = &c->told[i];
        const weft_reading *reading = c->reader[told->reader].reading;
        if (reading->paired && told->port == reading->mask)
            memcpy(negative + told->at, prompt + told->at, (size_t)told->rows * sizeof *prompt);
    }
}

weft_tensor *weft_captions_program_input(void *program, const char *name)
{
    return weft_program_input(program, name);
}

/* ---- what is said of them ------------------------------------------------------------------- */

static weft_status tell_reader(const weft_reader *reader, const weft_tokenizer *t, const char *text,
                               weft_buf *out)
{
    int32_t *all = NULL, *kept = NULL;
    int64_t count, left, cut, from = 0;
    WEFT_TRY(ids_of(reader, t, text, 0, &all, &count, NULL));
    weft_status_code status = ids_of(reader, t, text, reader->length, &kept, &left, &cut);
    if (status == WEFT_OK && cut) {
        while (from < left && all[from] == kept[from])
            from++;
        weft_buf_printf(out, "has %lld tokens more than the %lld that %s (%s) takes; cut was \"",
                        (long long)cut, (long long)reader->length, reader->reading->encoder,
                        weft_model_class(&reader->model));
        weft_tokenizer_text(t, all + from, cut < count - from ? cut : count - from, out);
        weft_buf_printf(out, "\"\n");
    }
    weft_free(all);
    weft_free(kept);
    return status;
}

weft_status weft_captions_tell_cut(const weft_captions *c, const weft_spelling *s, const char *text,
                                   weft_buf *out)
{
    for (int r = 0; r < c->readers; r++) {
        const weft_reader *reader = &c->reader[r];
        const int64_t most = s->of[r] ? 0 : weft_model_text(&reader->model).bytes;
        const int64_t length = (int64_t)strlen(text);
        if (most && length > most)
            weft_buf_printf(out, "has %lld bytes; this model reads the first %lld\n",
                            (long long)length, (long long)most);
        if (s->of[r])
            WEFT_TRY(tell_reader(reader, s->of[r], text, out));
    }
    return weft_buf_check(out);
}

void weft_captions_warn_cut(const weft_captions *c, const weft_spelling *s)
{
    for (int r = 0; r < c->readers; r++)
        if (s->cut[r])
            weft_warn("%lld of %lld captions have more tokens than the %lld that %s takes: what is "
                      "behind was cut",
                      (long long)s->cut[r], (long long)s->texts, (long long)c->reader[r].length,
                      c->reader[r].reading->encoder);
}

static weft_status hash_files(const char *path, XXH3_state_t *state)
{
    weft_names names = {0};
    char folder[600], file[1300];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!weft_path_is_dir(folder))
        snprintf(slash ? slash : folder, slash ? 1 : 2, "%s", slash ? "" : ".");
    WEFT_TRY(weft_list_dir(folder, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, names.name[i]);
        if (weft_tokenizer_is_file(names.name[i]))
            status = weft_hash_file(state, file);
    }
    weft_names_free(&names);
    return status;
}

weft_status weft_captions_hash(const weft_captions *c, int r, uint64_t *hash)
{
    const weft_reader *reader = &c->reader[r];
    const weft_reading *reading = reader->reading;
    weft_buf what = {0};
    weft_buf_printf(&what, "%lld %lld %d %d %d %s|%s", (long long)reader->length,
                    (long long)reading->crop, reading->clean, reading->sees_padding, reading->zeros,
                    reading->before ? reading->before : "", reading->behind ? reading->behind : "");
    for (int i = 0; i < c->tolds; i++)
        if (c->told[i].reader == r)
            weft_buf_printf(&what, "|%s", weft_port_name(c->told[i].port));
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = weft_buf_check(&what);
    if (status == WEFT_OK && !state)
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK) {
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, what.data, (size_t)what.len);
        if (reader->tokenizer[0])
            status = hash_files(reader->tokenizer, state);
        *hash = XXH3_64bits_digest(state);
    }
    XXH3_freeState(state);
    weft_buf_free(&what);
    return status;
}
