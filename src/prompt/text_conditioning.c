#include "prompt/text_conditioning.h"

#include "base/fs.h"
#include "graph/builder_helpers.h"
#include "nn/nn.h"
#include "prompt/all_layers.h"
#include "prompt/text_connectors.h"
#include "prompt/text_images.h"
#include "prompt/text_rows.h"
#include "text/byte_tokenizer.h"

#include <stdio.h>
#include <string.h>

/* ---- opening -------------------------------------------------------------------------------- */

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
    char *config = found ? NULL : weft_path_join(folder, "tokenizer_config.json");
    found = found || (config && weft_path_exists(config) && weft_tokenizer_is_byt5(config));
    weft_free(config);
    return found;
}

/* Finds the tokenizer: the config's, else in the folder of the weights, else next to that
 * folder. */
static weft_status find_tokenizer(const weft_text_encoder_spec *spec,
                                  const weft_text_encoder_row *row, const char *where,
                                  char path[600])
{
    const char *tokenizer = spec->tokenizer;
    if (spec->model.family->tokens) {
        if (tokenizer && tokenizer[0])
            return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                              WEFT_AT(.file = where, .key = "tokenizer", .value = tokenizer),
                              "%s needs no tokenizer; remove this key",
                              weft_model_class(&spec->model));
        return WEFT_OK;
    }
    if (tokenizer && tokenizer[0]) {
        if (snprintf(path, 600, "%s", tokenizer) < 600)
            return WEFT_OK;
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = tokenizer),
                          "the path is longer than %d bytes", 599);
    }
    const char *folder = spec->folder ? spec->folder : "", *slash = strrchr(folder, '/');
    snprintf(path, 600, "%.500s", folder);
    if (folder[0] && has_files(path))
        return WEFT_OK;
    snprintf(path, 600, "%.*s/%s", slash ? (int)(slash - folder < 500 ? slash - folder : 500) : 1,
             slash ? folder : ".", row->tokenizer);
    if (folder[0] && has_files(path))
        return WEFT_OK;
    return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = where, .key = "tokenizer"),
                      "%s needs its tokenizer, and neither %s nor the folder %s next to it has "
                      "one. Give its tokenizer.json, spiece.model, vocab.json or vocab.txt (or "
                      "their folder), or use a WeftBytesEncoder.",
                      weft_model_class(&spec->model), folder[0] ? folder : "the config",
                      row->tokenizer);
}

/* Number of text tokens that the denoiser requires; 0: any. */
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

int64_t weft_text_encoder_crop(const weft_text_encoder *encoder)
{
    return encoder->model.family->tokens ? 0
           : encoder->edit               ? encoder->edit->crop
           : encoder->vision             ? encoder->vision->crop
                                         : encoder->row->crop;
}

int64_t weft_text_encoder_rows(const weft_text_encoder *encoder)
{
    return encoder->image_tokens + encoder->text_tokens;
}

int64_t weft_text_encoder_positions(const weft_text_encoder *encoder)
{
    const int64_t more = weft_image_tokens_count(&encoder->images) - encoder->images.count;
    return encoder->length + more + (encoder->vision ? encoder->vision->patches - 1 : 0);
}

/* Determines whether the encoder has a vision input, and checks that the denoiser's row supports
 * it. */
static weft_status find_vision(const weft_model *denoiser, const char *where,
                               weft_text_encoder *encoder)
{
    const weft_text_shape text = weft_model_text(&encoder->model);
    const weft_vision_input *vision = encoder->row->vision;
    const int64_t step = weft_model_takes_port(denoiser).image_token_step;
    if (!text.image_side)
        return WEFT_OK;
    if (!vision || !step)
        return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                          WEFT_AT(.file = where, .value = weft_model_class(&encoder->model)),
                          "%s reads the first frame with the prompt, but this %s takes the text "
                          "alone; use a text encoder",
                          weft_model_class(&encoder->model), weft_model_class(denoiser));
    if (text.patches != vision->patches)
        return weft_error(
            WEFT_MSG_TEXT_ENCODER_UNSUPPORTED, WEFT_AT(.file = where, WEFT_NUMBER(text.patches)),
            "this %s encodes an image in %" PRId64 " tokens, but %s was trained with %" PRId64,
            weft_model_class(&encoder->model), text.patches, weft_model_class(denoiser),
            vision->patches);
    encoder->vision = vision;
    encoder->image_side = text.image_side;
    encoder->step = step;
    encoder->image_tokens = (vision->patches + step - 1) / step;
    return WEFT_OK;
}

static weft_status find_length(const weft_model *denoiser, const weft_text_encoder_spec *spec,
                               const char *where, weft_text_encoder *encoder)
{
    const weft_text_encoder_row *row = encoder->row;
    const weft_text_shape text = weft_model_text(&encoder->model);
    const int64_t only = only_length(denoiser, row->text);
    if (encoder->model.family->tokens) {
        if (spec->length && spec->length != text.length)
            return weft_error(
                WEFT_MSG_TEXT_ENCODER_MISMATCH,
                WEFT_AT(.file = where, .key = "max_length", WEFT_NUMBER(spec->length)),
                "%" PRId64 " differs from the %" PRId64 " tokens in the config of %s", spec->length,
                text.length, weft_model_class(&encoder->model));
        encoder->length = encoder->text_tokens = text.length;
        return WEFT_OK;
    }
    if (only && spec->length && spec->length != only)
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = where, .key = "max_length", WEFT_NUMBER(spec->length)),
                          "%" PRId64 " differs from the %" PRId64
                          " positions of %s for text; omit the key",
                          spec->length, only, weft_model_class(denoiser));
    const int64_t wanted = spec->length ? spec->length
                           : only       ? only
                                        : row->length,
                  crop = weft_text_encoder_crop(encoder),
                  least = crop + (encoder->vision ? encoder->vision->cut : 0);
    if (encoder->instruction) {
        encoder->text_tokens = wanted ? wanted : text.length;
        encoder->length = encoder->text_tokens + encoder->instruction - 2;
        return WEFT_OK;
    }
    encoder->length = wanted ? wanted + crop : text.length;
    if (encoder->length <= least)
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = where, .key = "max_length", WEFT_NUMBER(encoder->length)),
                          "%s takes %" PRId64 " tokens; the template around a text needs %" PRId64
                          " of them",
                          weft_model_class(&encoder->model), encoder->length, least);
    encoder->text_tokens = encoder->length - least;
    return WEFT_OK;
}

/* Floats of a port in a packed caption. */
static int64_t floats_of(const weft_text_conditioning *c, weft_port port)
{
    int64_t floats = 0;
    for (int i = 0; i < c->entries; i++)
        floats += c->entry[i].port == port ? c->entry[i].rows * c->entry[i].width : 0;
    return floats;
}

static weft_conditioning_entry *add_entry(weft_text_conditioning *c, weft_port port, int r,
                                          int64_t rows, int64_t width)
{
    weft_conditioning_entry *entry = &c->entry[c->entries];
    *entry =
        (weft_conditioning_entry){port, r, rows, width, c->floats, .inside = floats_of(c, port)};
    c->entries++;
    c->floats += rows * width;
    return entry;
}

/* Adds the pooled vector of encoder r, after those of earlier encoders. */
static weft_status connect_pooled(const weft_model *denoiser, int r, const char *where,
                                  weft_text_conditioning *c)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const weft_port port = encoder->row->pooled;
    const weft_text_shape text = weft_model_text(&encoder->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t takes = weft_model_shape(denoiser, &one, port).dim[1],
                  there = floats_of(c, port) + text.pooled;
    bool last = true;
    for (int k = r + 1; k < weft_text_conditioning_needed(denoiser); k++)
        last = last && weft_text_conditioning_row(denoiser, k)->pooled != port;
    if (!text.pooled || (last ? there != takes : there > takes))
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = where, .value = weft_model_class(&encoder->model),
                                  WEFT_NUMBER(text.pooled)),
                          "the pooled vector of %s has %" PRId64
                          " values; the transformer takes %" PRId64 "%s. "
                          "CLIP's encoders have such a vector.",
                          weft_model_class(&encoder->model), text.pooled, takes,
                          there > text.pooled || !last ? " of several encoders together" : "");
    add_entry(c, port, r, 1, text.pooled);
    return WEFT_OK;
}

static weft_status connect_layers(const weft_model *denoiser, int r, const char *where,
                                  weft_text_conditioning *c)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const weft_text_shape text = weft_model_text(&encoder->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const weft_shape shape = weft_model_shape(denoiser, &one, encoder->row->layers);
    if (text.layers < shape.dim[0] || text.width != shape.dim[3])
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = where, .value = weft_model_class(&encoder->model)),
                          "%s has %" PRId64 " layers of width %" PRId64
                          "; the transformer takes %" PRId64 " of %" PRId64 ", "
                          "such as all layers of a Llama",
                          weft_model_class(&encoder->model), text.layers, text.width, shape.dim[0],
                          shape.dim[3]);
    add_entry(c, encoder->row->layers, r, text.layers * encoder->length, text.width)->layers =
        text.layers;
    return WEFT_OK;
}

/* Width of an encoder's text embedding for the denoiser. If its row takes several layers and the
 * encoder has layers, their widths are added. */
static weft_status find_width(const weft_text_encoder *encoder, const char *where, int64_t *width)
{
    const weft_text_shape text = weft_model_text(&encoder->model);
    const int64_t *hidden = encoder->row->hidden;
    int64_t count = 0;
    for (; hidden[count] && text.layers; count++)
        if (hidden[count] > text.layers)
            return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                              WEFT_AT(.file = where, .value = weft_model_class(&encoder->model),
                                      WEFT_NUMBER(hidden[count])),
                              "%s has %" PRId64 " layers; the transformer takes the output of "
                              "layer %" PRId64,
                              weft_model_class(&encoder->model), text.layers, hidden[count]);
    if (encoder->row->all_hidden && text.layers)
        count = text.layers;
    *width = text.width * (count ? count : 1);
    return WEFT_OK;
}

/* Adds the outputs of encoder r, and checks that their widths fit the denoiser. */
static weft_status connect(const weft_model *denoiser, int r, const char *where,
                           weft_text_conditioning *c)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const weft_text_encoder_row *row = encoder->row;
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t rows = weft_text_encoder_rows(encoder);
    int64_t width = 0;
    if (row->connectors) {
        WEFT_TRY(weft_text_connectors_check(denoiser, encoder, where));
        for (int i = 0; i < WEFT_TEXT_STREAMS; i++)
            add_entry(c, weft_text_connectors_port(row, i), r, rows,
                      weft_text_connectors_width(encoder, i));
        return WEFT_OK;
    }
    WEFT_TRY(find_width(encoder, where, &width));
    if (row->text && weft_model_takes(denoiser, row->text)) {
        const weft_shape shape = weft_model_shape(denoiser, &one, row->text);
        if (shape.dim[2] != width)
            return weft_error(
                WEFT_MSG_TEXT_ENCODER_MISMATCH, WEFT_AT(.file = where, WEFT_NUMBER(width)),
                "the width of the text encoder is %" PRId64 "; the transformer takes %" PRId64,
                width, shape.dim[2]);
        add_entry(c, row->text, r, rows, width);
    }
    if (row->mask && weft_model_takes(denoiser, row->mask) && encoder->tokenizer[0])
        add_entry(c, row->mask, r, rows, 1);
    if (row->pooled && weft_model_takes(denoiser, row->pooled))
        WEFT_TRY(connect_pooled(denoiser, r, where, c));
    if (row->layers && weft_model_takes(denoiser, row->layers))
        WEFT_TRY(connect_layers(denoiser, r, where, c));
    return WEFT_OK;
}

weft_status weft_text_conditioning_connect(const weft_model *denoiser, const char *where,
                                           weft_text_conditioning *c)
{
    c->entries = 0;
    c->floats = 0;
    for (int r = 0; r < c->encoders; r++)
        WEFT_TRY(connect(denoiser, r, where, c));
    return WEFT_OK;
}

weft_status weft_text_conditioning_open(const weft_model *denoiser,
                                        const weft_text_encoder_spec *spec, int count,
                                        const char *where, weft_text_conditioning *text)
{
    weft_text_conditioning c = {0};
    const int needed = weft_text_conditioning_needed(denoiser);
    if (count != needed) {
        weft_buf which = {0};
        for (int r = 0; r < needed; r++) {
            const weft_text_encoder_row *row = weft_text_conditioning_row(denoiser, r);
            weft_buf_printf(&which, "%s%s", r ? ", then " : "",
                            row->text     ? "one for the text"
                            : row->layers ? "one for the text by all its layers"
                                          : "one for its pooled vector");
        }
        const weft_status_code status =
            weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH, WEFT_AT(.file = where, WEFT_NUMBER(count)),
                       "%s takes %d text encoder%s (%s), not %d", weft_model_class(denoiser),
                       needed, needed > 1 ? "s" : "", which.data ? which.data : "", count);
        weft_buf_free(&which);
        return status;
    }
    c.encoders = count;
    for (int r = 0; r < count; r++) {
        weft_text_encoder *encoder = &c.encoder[r];
        encoder->row = weft_text_conditioning_row(denoiser, r);
        encoder->model = spec[r].model;
        encoder->connectors = spec[r].connectors;
        WEFT_TRY(find_tokenizer(&spec[r], encoder->row, where, encoder->tokenizer));
        WEFT_TRY(find_vision(denoiser, where, encoder));
        WEFT_TRY(weft_text_rows_count(encoder));
        WEFT_TRY(find_length(denoiser, &spec[r], where, encoder));
    }
    WEFT_TRY(weft_text_conditioning_connect(denoiser, where, &c));
    *text = c;
    return WEFT_OK;
}

const weft_conditioning_entry *weft_text_conditioning_find(const weft_text_conditioning *c,
                                                           weft_port port)
{
    for (int i = 0; i < c->entries; i++)
        if (c->entry[i].port == port)
            return &c->entry[i];
    return NULL;
}

int64_t weft_text_conditioning_length(const weft_text_conditioning *c)
{
    const weft_conditioning_entry *entry = weft_text_conditioning_find(c, WEFT_PORT_TEXT);
    return entry ? entry->rows : 0;
}

int64_t weft_text_conditioning_length2(const weft_text_conditioning *c)
{
    const weft_conditioning_entry *entry = weft_text_conditioning_find(c, WEFT_PORT_TEXT2);
    return entry ? entry->rows : 0;
}

/* ---- graphs --------------------------------------------------------------------------------- */

/* "batch.tokens", "batch.tokens_2" */
const char *weft_text_conditioning_input(const char *what, int r, char name[32])
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
    return weft_input(g, weft_text_conditioning_input(what, r, name), WEFT_I32,
                      WEFT_SHAPE(batch, length));
}

/* (B,N,L,D) to (N,B,L,D): sharding splits samples as the first dim, the port has layers first. */
static weft_value layers_first(weft_graph *g, weft_value x)
{
    const weft_attr_permute swap = {.perm = {1, 0, 2, 3}};
    return weft_emit(g, WEFT_OP_PERMUTE, &x, 1, &swap);
}

void weft_text_conditioning_inputs(weft_graph *g, const weft_text_conditioning *c,
                                   const weft_model *denoiser, const weft_model_size *size,
                                   const char *prefix, weft_ports *ports)
{
    for (int i = 0; i < c->entries; i++) {
        const weft_conditioning_entry *t = &c->entry[i];
        char name[64];
        snprintf(name, sizeof name, "%s%s", prefix, weft_port_name(t->port));
        if (t->inside)
            continue;
        if (t->layers)
            ports->at[t->port] = layers_first(
                g, weft_input(g, name, WEFT_F32,
                              WEFT_SHAPE(size->batch, t->layers, t->rows / t->layers, t->width)));
        else
            ports->at[t->port] = weft_model_input(g, denoiser, size, t->port, prefix);
    }
}

static bool provides(const weft_text_conditioning *c, weft_port port)
{
    return port && weft_text_conditioning_find(c, port) != NULL;
}

/* Whether the graph has an input that marks the text's tokens. */
static bool knows_real(const weft_text_conditioning *c, const weft_text_encoder *r)
{
    return r->tokenizer[0] && (r->row->zeros || r->row->connectors || provides(c, r->row->mask));
}

static void encode(weft_graph *g, const weft_text_conditioning *c, int r, int64_t batch, bool stays,
                   weft_ports *ports)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const weft_text_encoder_row *row = encoder->row;
    const int64_t rows = weft_text_encoder_rows(encoder);
    weft_ports p = weft_ports_none();
    char name[32];
    p.at[WEFT_PORT_TOKENS] = numbers(g, "tokens", r, batch, weft_text_encoder_positions(encoder));
    if (weft_model_has(&encoder->model, WEFT_PORT_TEXT_MASK) &&
        !weft_model_text(&encoder->model).unmasked)
        p.at[WEFT_PORT_TEXT_MASK] =
            numbers(g, "seen", r, batch, weft_text_encoder_positions(encoder));
    if (encoder->vision)
        p.at[WEFT_PORT_VIDEO] =
            weft_input(g, weft_text_conditioning_input("picture", r, name), WEFT_F32,
                       WEFT_SHAPE(batch, 1, encoder->image_side, encoder->image_side, 3));
    if (encoder->edit) {
        p.images = &encoder->images;
        p.at[WEFT_PORT_IMAGE] =
            weft_input(g, weft_text_conditioning_input("picture", r, name), WEFT_F32,
                       WEFT_SHAPE(batch, weft_image_tokens_count(&encoder->images),
                                  weft_model_text(&encoder->model).width));
    }
    p.hidden = row->hidden[0] ? row->hidden : NULL;
    weft_graph_push(g, "%s", row->encoder);
    weft_model_call(g, &encoder->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &p);
    weft_graph_pop(g);
    const weft_value real = knows_real(c, encoder) ? numbers(g, "real", r, batch, rows) : WEFT_NONE;
    if (row->connectors) {
        weft_text_connectors_call(g, encoder, layers_first(g, p.at[WEFT_PORT_TEXT_LAYERS]), real,
                                  stays, ports);
        return;
    }
    if (provides(c, row->text)) {
        weft_value text = p.at[WEFT_PORT_TEXT];
        if (row->all_hidden && weft_value_ok(p.at[WEFT_PORT_TEXT_LAYERS]))
            text = weft_all_layers_join(g, p.at[WEFT_PORT_TEXT_LAYERS]);
        if (stays)
            text = weft_unary(g, WEFT_OP_STOP, text);
        if (encoder->vision)
            text = weft_text_rows_of_image(
                g, encoder, numbers(g, "uncut", r, batch, encoder->text_tokens), text);
        else if (encoder->instruction)
            text = weft_text_rows_after_instruction(g, encoder, numbers(g, "uncut", r, batch, rows),
                                                    text);
        else if (weft_text_encoder_crop(encoder))
            text = weft_slice(g, text, 1, weft_text_encoder_crop(encoder), rows);
        if (row->zeros && weft_value_ok(real))
            text = weft_mul(
                g, text, weft_reshape(g, weft_cast(g, real, WEFT_F32), WEFT_SHAPE(batch, rows, 1)));
        ports->at[row->text] = text;
    }
    if (provides(c, row->mask))
        ports->at[row->mask] = real;
    if (provides(c, row->pooled)) {
        const weft_value pooled = stays ? weft_unary(g, WEFT_OP_STOP, p.at[WEFT_PORT_POOLED])
                                        : p.at[WEFT_PORT_POOLED],
                         before = ports->at[row->pooled];
        ports->at[row->pooled] =
            weft_value_ok(before) ? weft_concat(g, (weft_value[]){before, pooled}, 2, 1) : pooled;
    }
    if (provides(c, row->layers)) /* (B,N,L,D) */
        ports->at[row->layers] = stays ? weft_unary(g, WEFT_OP_STOP, p.at[WEFT_PORT_TEXT_LAYERS])
                                       : p.at[WEFT_PORT_TEXT_LAYERS];
}

void weft_text_conditioning_encode(weft_graph *g, const weft_text_conditioning *c, int64_t batch,
                                   uint32_t stays, weft_ports *ports)
{
    for (int r = 0; r < c->encoders; r++)
        encode(g, c, r, batch, stays >> r & 1, ports);
    for (int i = 0; i < c->entries; i++)
        if (c->entry[i].layers)
            ports->at[c->entry[i].port] = layers_first(g, ports->at[c->entry[i].port]);
}

weft_status weft_text_conditioning_check_append(const weft_model *denoiser, int64_t width,
                                                const char *who)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    const char *name = weft_model_class(denoiser);
    if (!weft_model_takes(denoiser, WEFT_PORT_TEXT))
        return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED, WEFT_AT(.file = who),
                          "its tokens are added to those of a text, but this %s takes no text",
                          name);
    const int64_t only = only_length(denoiser, WEFT_PORT_TEXT),
                  takes = weft_model_shape(denoiser, &one, WEFT_PORT_TEXT).dim[2];
    if (only)
        return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                          WEFT_AT(.file = who, WEFT_NUMBER(only)),
                          "its tokens are added to those of the text, but this %s has positions "
                          "for %" PRId64 " tokens of text only",
                          name, only);
    if (takes != width)
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH, WEFT_AT(.file = who, WEFT_NUMBER(width)),
                          "its tokens have width %" PRId64
                          "; those of the text of this %s have %" PRId64,
                          width, name, takes);
    return WEFT_OK;
}

void weft_text_conditioning_append(weft_graph *g, weft_value tokens, weft_ports *ports)
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

void weft_text_conditioning_build(weft_graph *g, const weft_text_conditioning *c, int r,
                                  int64_t batch)
{
    weft_ports ports = weft_ports_none();
    encode(g, c, r, batch, false, &ports);
    for (int i = 0; i < c->entries; i++) {
        const weft_port port = c->entry[i].port;
        if (c->entry[i].encoder != r)
            continue;
        weft_output(g, weft_port_name(port),
                    weft_port_dtype(port) == WEFT_F32 ? ports.at[port]
                                                      : weft_cast(g, ports.at[port], WEFT_F32));
    }
}

/* ---- values --------------------------------------------------------------------------------- */

void weft_text_conditioning_set_image(const weft_text_conditioning *c, int r,
                                      weft_input_lookup *find, void *user, int64_t row,
                                      const float *image)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const int64_t each = encoder->edit ? weft_image_tokens_count(&encoder->images) *
                                             weft_model_text(&encoder->model).width
                                       : encoder->image_side * encoder->image_side * 3;
    char name[32];
    const weft_tensor *to = encoder->vision || encoder->edit
                                ? find(user, weft_text_conditioning_input("picture", r, name))
                                : NULL;
    if (to)
        memcpy((float *)to->data + row * each, image, (size_t)each * sizeof *image);
}

int64_t weft_text_conditioning_image_side(const weft_text_conditioning *c)
{
    for (int r = 0; r < c->encoders; r++)
        if (c->encoder[r].vision)
            return c->encoder[r].image_side;
    return 0;
}

void weft_text_conditioning_set_entry(const weft_text_conditioning *c,
                                      const weft_conditioning_entry *entry, weft_input_lookup *find,
                                      void *user, int64_t row, const float *packed)
{
    const int64_t count = entry->rows * entry->width, all = floats_of(c, entry->port);
    char name[32];
    const weft_tensor *to =
        find(user, weft_text_conditioning_input(weft_port_name(entry->port), 0, name));
    const float *from = packed + entry->at;
    if (to && to->dtype == WEFT_F32)
        memcpy((float *)to->data + row * all + entry->inside, from, (size_t)count * sizeof *from);
    for (int64_t k = 0; to && to->dtype == WEFT_I32 && k < count; k++)
        ((int32_t *)to->data)[row * all + k] = from[k] != 0;
}

void weft_text_conditioning_set(const weft_text_conditioning *c, weft_input_lookup *find,
                                void *user, int64_t row, const float *packed)
{
    for (int i = 0; i < c->entries; i++)
        weft_text_conditioning_set_entry(c, &c->entry[i], find, user, row, packed);
}

void weft_text_conditioning_get(const weft_text_conditioning *c, int r, weft_program *program,
                                int64_t count, float *packed)
{
    for (int i = 0; i < c->entries; i++) {
        const weft_conditioning_entry *entry = &c->entry[i];
        const int64_t each = entry->rows * entry->width;
        if (entry->encoder != r)
            continue;
        const float *from = weft_program_output(program, weft_port_name(entry->port))->data;
        for (int64_t k = 0; k < count; k++)
            memcpy(packed + k * c->floats + entry->at, from + k * each,
                   (size_t)each * sizeof *from);
    }
}

void weft_text_conditioning_pair(const weft_text_conditioning *c, const float *prompt,
                                 float *negative)
{
    for (int i = 0; i < c->entries; i++) {
        const weft_conditioning_entry *entry = &c->entry[i];
        const weft_text_encoder_row *row = c->encoder[entry->encoder].row;
        if (row->paired && entry->port == row->mask)
            memcpy(negative + entry->at, prompt + entry->at, (size_t)entry->rows * sizeof *prompt);
    }
}

weft_tensor *weft_text_conditioning_program_input(void *program, const char *name)
{
    return weft_program_input(program, name);
}
