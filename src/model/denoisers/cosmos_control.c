#include "model/denoisers/cosmos_control.h"

#include "base/config.h"
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"

#include <string.h>

/* Tokens of the control (B,S,C). Channels that it lacks are zeros. */
static weft_value embed_control(weft_graph *g, const weft_cosmos_control *c, const weft_ports *in)
{
    const weft_value control = in->at[WEFT_PORT_CONTROL];
    weft_denoiser_check_control(g, in);
    const int64_t lacks = c->in_channels - 2 - weft_dim(g, control, 4);
    const weft_value part[] = {lacks > 0 ? weft_pad(g, control, 4, 0, lacks) : control,
                               weft_cosmos_marks(g, in), weft_cosmos_padding(g, in)};
    return weft_nn_patch(g, "patch_embed.proj", weft_concat(g, part, WEFT_COUNT(part), 4),
                         weft_cosmos_width(&c->net), c->net.patch, WEFT_PATCH_LINEAR, false);
}

static weft_value embed_latents(weft_graph *g, const weft_cosmos_control *c, const weft_ports *in)
{
    const weft_value part[] = {in->at[WEFT_PORT_LATENTS], weft_cosmos_marks(g, in),
                               weft_cosmos_padding(g, in)};
    return weft_nn_patch(g, "patch_embed_base.proj", weft_concat(g, part, WEFT_COUNT(part), 4),
                         weft_cosmos_width(&c->net), c->net.patch, WEFT_PATCH_LINEAR, false);
}

void weft_cosmos_control_build(weft_graph *g, const weft_cosmos_control *c, const weft_ports *in,
                               const int64_t size[3], weft_value hint[WEFT_COSMOS_MAX_HINTS])
{
    const int64_t width = weft_cosmos_width(&c->net);
    const weft_value scales = in->at[WEFT_PORT_CONTROL_SCALE];
    weft_cosmos_condition to;
    memcpy(to.size, size, sizeof to.size);
    weft_value x = embed_control(g, c, in);
    const weft_value latents = embed_latents(g, c, in);
    weft_cosmos_embed(g, &c->net, in, &to);
    for (int64_t i = 0; i < c->blocks; i++) {
        weft_graph_push(g, "control_blocks.%d", (int)i);
        if (i == 0)
            x = weft_add(g, weft_nn_linear(g, "before_proj", x, width, WEFT_LINEAR_XAVIER),
                         latents);
        x = weft_cosmos_block(g, &c->net, x, &to);
        hint[i] = weft_nn_linear(g, "after_proj", x, width, WEFT_LINEAR_ZERO);
        if (weft_value_ok(scales))
            hint[i] = weft_mul(
                g, hint[i], weft_reshape(g, weft_slice(g, scales, 0, i, 1), WEFT_SHAPE(1, 1, 1)));
        weft_graph_pop(g);
    }
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const weft_cosmos_control *c = config;
    WEFT_TRY(weft_cosmos_check(&c->net, locations));
    if (c->width != weft_cosmos_width(&c->net))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "model_channels", c->width),
                          "%" PRId64 " is not the width of all heads, %" PRId64, c->width,
                          weft_cosmos_width(&c->net));
    return WEFT_OK;
}

/* clang-format off */
#define AT(member) offsetof(weft_cosmos_control, member)
static const weft_field fields[] = {
    {"n_controlnet_blocks", WEFT_FIELD_I64, AT(blocks), "4", 1, WEFT_COSMOS_MAX_HINTS,
     .help = "blocks of the control branch"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "130", 3, 1 << 16,
     .help = "channels of the control, with marks of given frames and a padding mask"},
    {"latent_channels", WEFT_FIELD_I64, AT(latent_channels), "18", 3, 1 << 16,
     .help = "channels of the latents, with both"},
    {"model_channels", WEFT_FIELD_I64, AT(width), "2048", 1, 1 << 20, .help = "width"},
    WEFT_COSMOS_FIELDS(AT(net), "null"),
};

const weft_family weft_family_cosmos_control = {
    .class_name = "CosmosControlNetModel", .role = WEFT_ROLE_DENOISER, .scope = "controlnet",
    .library = "diffusers",
    .config_bytes = sizeof(weft_cosmos_control), .field = fields,
    .fields = sizeof fields / sizeof *fields, .check = check,
};
/* clang-format on */
