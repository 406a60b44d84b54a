
// ---- the mask brush: the painted part of a video is generated, the rest is kept -------------------

const MASK_SIDE = 1920; // pixels of a drawn mask, at most
const MASK_COLOUR = '#00e5ff';
const brush = { x: 0.5, y: 0.5, erases: false, paints: false, keys: false, undo: [], source: null };
const maskCanvas = $('mask-canvas');
const maskLayer = make('canvas'); // opaque where the video is generated
const maskContext = maskLayer.getContext('2d', { willReadFrequently: true });

// The first frame of a video, or an image.
function openSource(file) {
  return new Promise((resolve, reject) => {
    const video = file.type.startsWith('video/'), source = make(video ? 'video' : 'img', video ? { muted: true, preload: 'auto' } : {});
    source.addEventListener(video ? 'loadeddata' : 'load', () => resolve(source));
    source.addEventListener('error', () => reject(new Error('The browser cannot show this file. Choose a mask as a file.')));
    source.src = URL.createObjectURL(file);
  });
}

const sizeOf = (source) => [source.videoWidth || source.naturalWidth, source.videoHeight || source.naturalHeight];

async function drawMask() {
  const source = await openSource(has('control') && !currentModel().needs_face ? files.control : files.video);
  const [width, height] = sizeOf(source), scale = Math.min(1, MASK_SIDE / Math.max(width, height));
  brush.source = source;
  brush.undo = [];
  for (const canvas of [maskCanvas, maskLayer])
    Object.assign(canvas, { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) });
  const ratio = maskCanvas.width / maskCanvas.height;
  maskCanvas.style.width = `min(100%, ${(60 * ratio).toFixed(2)}vh)`;
  maskCanvas.style.aspectRatio = ratio;
  if (files.mask && files.mask.type.startsWith('image/')) await loadMask(files.mask);
  $('mask-frame').value = 0;
  $('mask-frame-row').hidden = !source.videoWidth || !(source.duration > 0);
  setErase(false);
  paint();
  $('masking').showModal();
  maskCanvas.focus();
}

// The white part of an image becomes the painted part.
async function loadMask(file) {
  const image = await openSource(file), context = maskContext;
  context.drawImage(image, 0, 0, maskLayer.width, maskLayer.height);
  const pixels = context.getImageData(0, 0, maskLayer.width, maskLayer.height);
  for (let i = 0; i < pixels.data.length; i += 4)
    pixels.data.set([0, 229, 255, pixels.data[i + 1] > 127 ? 255 : 0], i);
  context.putImageData(pixels, 0, 0);
  URL.revokeObjectURL(image.src);
}

const brushRadius = () => Math.max(0.5, $('mask-size').value / 200 * Math.max(maskCanvas.width, maskCanvas.height));

// The source, the painted part over it, and the brush.
function paint() {
  const context = maskCanvas.getContext('2d'), { width, height } = maskCanvas;
  context.globalAlpha = 1;
  context.drawImage(brush.source, 0, 0, width, height);
  context.globalAlpha = 0.6;
  context.drawImage(maskLayer, 0, 0);
  if (!brush.keys) return;
  context.globalAlpha = 1;
  context.lineWidth = Math.max(1, width / 300);
  context.strokeStyle = '#fff';
  context.beginPath();
  context.arc(brush.x * width, brush.y * height, brushRadius(), 0, 2 * Math.PI);
  context.stroke();
}

function remember() {
  brush.undo.push(maskContext.getImageData(0, 0, maskLayer.width, maskLayer.height));
  if (brush.undo.length > 10) brush.undo.shift();
}

// A line of the brush from the last place to a further one.
function stroke(x, y) {
  const context = maskContext, { width, height } = maskLayer;
  context.globalCompositeOperation = brush.erases ? 'destination-out' : 'source-over';
  context.strokeStyle = MASK_COLOUR;
  context.lineCap = context.lineJoin = 'round';
  context.lineWidth = 2 * brushRadius();
  context.beginPath();
  context.moveTo(brush.x * width, brush.y * height);
  context.lineTo(x * width, y * height + 0.01); // a point is a line, too
  context.stroke();
  context.globalCompositeOperation = 'source-over';
  Object.assign(brush, { x, y });
  paint();
}

function setErase(erases) {
  brush.erases = erases;
  $('mask-erase').setAttribute('aria-pressed', String(erases));
}

// Fills the mask, empties it, or exchanges both parts.
function fillMask(how) {
  const context = maskContext, { width, height } = maskLayer;
  remember();
  context.fillStyle = MASK_COLOUR;
  context.globalCompositeOperation = { fill: 'source-over', clear: 'destination-out', invert: 'source-out' }[how];
  context.fillRect(0, 0, width, height);
  context.globalCompositeOperation = 'source-over';
  paint();
}

// White where the mask is painted, black elsewhere, and nothing in between.
function maskFile() {
  const out = make('canvas', { width: maskLayer.width, height: maskLayer.height }), context = out.getContext('2d');
  const pixels = maskContext.getImageData(0, 0, out.width, out.height);
  for (let i = 0; i < pixels.data.length; i += 4) {
    const value = pixels.data[i + 3] > 127 ? 255 : 0;
    pixels.data.set([value, value, value, 255], i);
  }
  context.putImageData(pixels, 0, 0);
  return new Promise((resolve) => { out.toBlob((blob) => resolve(new File([blob], 'mask.png', { type: 'image/png' })), 'image/png'); });
}

function onBrushKey(event) {
  const step = (event.shiftKey ? 0.1 : 0.02), move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  const limit = (value) => Math.min(1, Math.max(0, value));
  brush.keys = true;
  if (move[event.key]) {
    const [x, y] = [limit(brush.x + move[event.key][0]), limit(brush.y + move[event.key][1])];
    if (brush.paints) stroke(x, y); else Object.assign(brush, { x, y });
  } else if (event.key === ' ' && !brush.paints) {
    remember();
    brush.paints = true;
    stroke(brush.x, brush.y);
  } else if (event.key !== ' ') return;
  event.preventDefault();
  paint();
}

function startMask() {
  const at = (event) => {
    const box = maskCanvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  maskCanvas.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    maskCanvas.setPointerCapture(event.pointerId);
    remember();
    [brush.x, brush.y] = at(event);
    Object.assign(brush, { paints: true, keys: false });
    stroke(...at(event));
  });
  maskCanvas.addEventListener('pointermove', (event) => { if (brush.paints && !brush.keys) stroke(...at(event)); });
  for (const name of ['pointerup', 'pointercancel', 'blur']) maskCanvas.addEventListener(name, () => { brush.paints = false; });
  maskCanvas.addEventListener('keydown', onBrushKey);
  maskCanvas.addEventListener('keyup', (event) => { if (event.key === ' ') brush.paints = false; });
  $('mask-size').addEventListener('input', paint);
  $('mask-erase').addEventListener('click', () => setErase(!brush.erases));
  $('mask-undo').addEventListener('click', () => {
    const last = brush.undo.pop();
    if (last) maskContext.putImageData(last, 0, 0);
    paint();
  });
  for (const how of ['fill', 'clear', 'invert']) $('mask-' + how).addEventListener('click', () => fillMask(how));
  $('mask-frame').addEventListener('input', () => {
    brush.source.onseeked = paint;
    brush.source.currentTime = brush.source.duration * $('mask-frame').value / 1000;
  });
  $('mask-use').addEventListener('click', async () => {
    setFile('mask', await maskFile());
    changed();
    $('masking').close();
  });
  $('mask-close').addEventListener('click', () => $('masking').close());
  $('masking').addEventListener('close', () => { URL.revokeObjectURL(brush.source.src); brush.source = null; });
}
