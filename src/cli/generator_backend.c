#include "cli/generator_backend.h"

#include "cli/options/weights_option.h"
#include "doctor/backend_choice.h"

weft_status weft_generator_settle(const char *name, weft_comm *comm, weft_generator_options *o)
{
    const weft_products products = weft_generator_products(o);
    WEFT_TRY(weft_backend_settle(name, products, comm, &o->backend));
    return o->vae_products == WEFT_PRODUCTS_TF32 && products != WEFT_PRODUCTS_TF32
               ? weft_backend_settle(o->backend->name, WEFT_PRODUCTS_TF32, comm, &o->backend)
               : WEFT_OK;
}
