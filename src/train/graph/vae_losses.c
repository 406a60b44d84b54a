#include "train/graph/vae_losses.h"

#include "base/fs.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/weights.h"
#include "format/tensors/tensors_finite.h"
#include "graph/builder_helpers.h"
#include "train/graph/adversarial_term.h"

#include <string.h>

/* ---- networks ------------------------------------------------------------------------------- */

static weft_status read_lpips(const weft_run_lpips *c, const char *path, weft_lpips *out)
{
    weft_tensors *trunk = NULL, *heads = NULL;
    const char *key = "loss.lpips.backbone";
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_tensors_open(c->trunk, &trunk));
    WEFT_GO(weft_lpips_read(trunk, "", out));
    key = "loss.lpips.heads";
    WEFT_GO(weft_tensors_open(c->heads, &heads));
    WEFT_GO(weft_lpips_check_heads(out, heads, ""));
out:
    weft_tensors_close(trunk);
    weft_tensors_close(heads);
    return weft_error_at(status, WEFT_AT(.file = path, .key = key));
}

static weft_patchgan discriminator_of(const weft_run_adversarial *c)
{
    return (weft_patchgan){
        .in = 3, .channels = c->channels, .layers = c->layers, .video = c->video};
}

static weft_status check_size(const char *path, const char *where, const weft_bucket *b,
                              const char *what, const int64_t least[3])
{
    const int64_t size[3] = {b->frames, b->height, b->width};
    for (int i = 0; i < 3; i++)
        if (size[i] < least[i])
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = path, .key = where),
                              "%" PRId64 " x %" PRId64 " x %" PRId64
                              " is too small for %s, which needs at least %" PRId64 " "
                              "frames of %" PRId64 " x %" PRId64,
                              b->frames, b->height, b->width, what, least[0], least[1], least[2]);
    return WEFT_OK;
}

static weft_status check_sizes(const weft_run *run, const char *path, const weft_loss_nets *nets)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    int64_t least[3];
    for (int64_t s = 0; s < run->train_stages.count; s++)
        for (int i = 0; i < weft_train_stage_bucket_count(&train_stage[s]); i++) {
            const weft_bucket *b = weft_train_stage_bucket(&train_stage[s], i);
            char where[64];
            weft_train_stage_bucket_key(&train_stage[s], s, i, where);
            least[0] = 1;
            least[1] = least[2] = weft_lpips_least(&nets->lpips);
            if (weft_run_uses_lpips(run))
                WEFT_TRY(check_size(path, where, b, "loss.lpips", least));
            weft_patchgan_least(&nets->discriminator, least);
            if (weft_run_uses_discriminator(run))
                WEFT_TRY(
                    check_size(path, where, b, "loss.adversarial (fewer layers need less)", least));
        }
    return WEFT_OK;
}

weft_status weft_loss_nets_read(const weft_run *run, const char *path, weft_loss_nets *nets)
{
    *nets = (weft_loss_nets){.discriminator = discriminator_of(&run->loss.adversarial)};
    if (weft_run_uses_lpips(run))
        WEFT_TRY(read_lpips(&run->loss.lpips, path, &nets->lpips));
    return check_sizes(run, path, nets);
}

json_t *weft_discriminator_write(const weft_patchgan *c)
{
    return json_pack("{s:s, s:I, s:I, s:I}", "_class_name",
                     c->video ? "NLayerDiscriminator3D" : "NLayerDiscriminator", "input_nc",
                     (json_int_t)c->in, "ndf", (json_int_t)c->channels, "n_layers",
                     (json_int_t)c->layers);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* Copies this rank's tensor shard from a file that has the complete tensor. */
static weft_status copy_in(const weft_tensors *file, const char *name, weft_tensor *to)
{
    const weft_stored_tensor *from = weft_tensors_find(file, name);
    if (!from || from->count != weft_shape_count(&to->whole))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED,
                          WEFT_AT(.file = weft_tensors_path(file), .key = name),
                          "the tensor is missing or has another size than before");
    WEFT_TRY(weft_stored_check_finite(from));
    float *values;
    WEFT_TRY(WEFT_NEW(values, from->count, "\"%s\"", name));
    weft_tensor_to_f32(from, values);
    const weft_box all = weft_box_whole(&to->whole);
    const weft_status_code status = weft_tensor_put(to, &all, values, WEFT_F32, NULL);
    weft_free(values);
    to->deferred = (weft_init){0};
    return status;
}

static weft_status begin_lpips(const weft_run_lpips *c, weft_store *store)
{
    static const char scope[] = WEFT_LPIPS_SCOPE ".";
    weft_tensors *trunk = NULL, *heads = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_tensors_open(c->trunk, &trunk));
    WEFT_GO(weft_tensors_open(c->heads, &heads));
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        const char *name = t->name + sizeof scope - 1;
        if (!strncmp(t->name, scope, sizeof scope - 1))
            WEFT_GO(copy_in(strncmp(name, "lin", 3) ? trunk : heads, name, t));
    }
out:
    weft_tensors_close(trunk);
    weft_tensors_close(heads);
    return status;
}

weft_status weft_loss_nets_begin(const weft_run *run, const weft_graph *whole, weft_store *store)
{
    if (weft_run_uses_lpips(run))
        WEFT_TRY(begin_lpips(&run->loss.lpips, store));
    if (!weft_run_uses_discriminator(run) || !run->loss.adversarial.weights[0])
        return WEFT_OK;
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(run->loss.adversarial.weights, &file));
    return weft_weights_load(store, whole, WEFT_DISCRIMINATOR_SCOPE ".", file, true);
}

/* ---- the graph ------------------------------------------------------------------------------ */

/* The generator's last matrix or kernel. Parameters are declared in the order of their use. */
static weft_value last_layer(weft_graph *g)
{
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    for (int i = count - 1; param && i >= 0; i--)
        if (weft_value_get(g, param[i])->shape.rank >= 2)
            return param[i];
    return WEFT_NONE;
}

/* A value of 0 with the gradient of `loss`. */
static weft_value unseen(weft_graph *g, weft_value loss)
{
    return weft_sub(g, loss, weft_unary(g, WEFT_OP_STOP, loss));
}

static weft_value add_adversary(weft_graph *g, const weft_run_adversarial *c,
                                const weft_patchgan *net_config, weft_value loss, weft_value x,
                                weft_value made, weft_value seen)
{
    weft_patchgan_net net;
    weft_adversarial_term pull;
    const weft_value last = c->adaptive ? last_layer(g) : WEFT_NONE;
    const weft_value on = weft_input(g, "loss.adversarial", WEFT_F32, WEFT_SCALAR);
    weft_graph_push(g, WEFT_DISCRIMINATOR_SCOPE);
    weft_patchgan_declare(g, net_config, &net);
    const weft_value real = weft_patchgan_call(g, net_config, &net, x, NULL),
                     logits = weft_patchgan_call(g, net_config, &net, seen, NULL);
    weft_graph_pop(g);
    const weft_value against = weft_gan_generator_loss(g, logits),
                     judged = weft_gan_discriminator_loss(g, (weft_gan_loss)c->loss, real, logits);
    weft_adversarial_term_build(g, made, seen, loss, against, last,
                                weft_affine(g, on, c->weight, 0), &pull);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_output(g, "generator", against);
    weft_output(g, "discriminator", judged);
    weft_output(g, "adversarial_weight", pull.weight);
    loss = weft_add(g, loss, pull.pull);
    return weft_add(g, loss, unseen(g, judged));
}

weft_value weft_losses_add(weft_graph *g, const weft_run *run, const weft_loss_nets *nets,
                           weft_value loss, weft_value x, weft_value made, weft_value seen)
{
    if (weft_run_uses_lpips(run)) {
        weft_lpips_distance d;
        weft_graph_push(g, WEFT_LPIPS_SCOPE);
        weft_lpips_build(g, &nets->lpips, x, seen, &d);
        weft_graph_pop(g);
        const weft_value far = weft_mean_all(g, d.all);
        weft_output(g, "lpips", far);
        loss = weft_add(g, loss, weft_affine(g, far, run->loss.lpips.weight, 0));
    }
    if (!weft_run_uses_discriminator(run))
        return loss;
    return add_adversary(g, &run->loss.adversarial, &nets->discriminator, loss, x, made, seen);
}
