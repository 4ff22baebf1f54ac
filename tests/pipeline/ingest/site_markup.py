"""Pages modelled on how well-known kinds of sites write them, each with the pairs a person reads off it.

Name → (address, page, [(address of the picture, {origin: caption}, licence)]).
"""

from __future__ import annotations

Expected = list[tuple[str, dict[str, str], str | None]]
CC_BY = "https://creativecommons.org/licenses/by/4.0/"
CC_BY_SA = "https://creativecommons.org/licenses/by-sa/4.0/"
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"

WORDPRESS_BLOCKS = """<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>Harbours</title>
<link rel="canonical" href="https://blog.example/2024/harbours/">
<link rel="stylesheet" href="/wp-content/themes/x/style.css"></head>
<body class="post-template-default single">
<header><a href="/" class="custom-logo-link"><img width="190" height="190" src="/wp-content/uploads/logo.png"
  class="custom-logo" alt="Our Blog"></a></header>
<article class="post-1 post type-post"><div class="entry-content">
<figure class="wp-block-image size-large"><a href="https://blog.example/wp-content/uploads/2024/05/boat.jpg">
  <img loading="lazy" decoding="async" width="1024" height="683"
   src="https://blog.example/wp-content/uploads/2024/05/boat-1024x683.jpg" alt="A red boat at low tide"
   srcset="https://blog.example/wp-content/uploads/2024/05/boat-1024x683.jpg 1024w,
           https://blog.example/wp-content/uploads/2024/05/boat-300x200.jpg 300w" sizes="(max-width: 1024px) 100vw"></a>
  <figcaption class="wp-element-caption">Low tide at <em>Cancale</em></figcaption></figure>
<figure class="wp-block-gallery has-nested-images columns-2 is-cropped">
  <figure class="wp-block-image"><img data-id="7" src="/wp-content/uploads/2024/05/net-768x512.jpg" alt=""
    data-full-url="https://blog.example/wp-content/uploads/2024/05/net.jpg"
    srcset="/wp-content/uploads/2024/05/net-768x512.jpg 768w, /wp-content/uploads/2024/05/net-1536x1024.jpg 1536w">
    <figcaption>Nets</figcaption></figure>
  <figure class="wp-block-image"><img data-id="8" src="/wp-content/uploads/2024/05/gull-768x512.jpg" alt="Gull"
    srcset="/wp-content/uploads/2024/05/gull-768x512.jpg 768w, /wp-content/uploads/2024/05/gull-1536x1024.jpg 1536w">
  </figure>
  <figcaption class="blocks-gallery-caption">Around the quay</figcaption>
</figure>
<div id="attachment_9" style="width: 310px" class="wp-caption alignnone"><a href="/harbours/fog/">
  <img src="/wp-content/uploads/fog-300x200.jpg" alt="fog" width="300" height="200"></a>
  <p id="caption-attachment-9" class="wp-caption-text">Fog over the locks</p></div>
<dl class="gallery-item"><dt class="gallery-icon landscape"><a href="/wp-content/uploads/mast.jpg"><img
  src="/wp-content/uploads/mast-150x150.jpg" class="attachment-thumbnail" aria-describedby="gallery-1-12"></a></dt>
  <dd class="wp-caption-text gallery-caption" id="gallery-1-12"> A broken mast </dd></dl>
</div></article>
<img src="https://pixel.wp.example/g.gif?v=ext&amp;blog=1" width="1" height="1" style="display:none" alt="">
<footer>Text and pictures: <a href="https://creativecommons.org/licenses/by/4.0/" rel="license">CC BY</a></footer>
</body></html>"""

MEDIAWIKI = """<!DOCTYPE html><html class="client-nojs"><head><meta charset="UTF-8"><title>Otter - Wiki</title></head>
<body class="mediawiki"><div id="mw-content-text"><div class="mw-parser-output">
<table class="infobox biota"><tbody><tr><td class="infobox-image"><span typeof="mw:File"><a
  href="/wiki/File:Otter_a.jpg"
  class="mw-file-description"><img src="//upload.wiki.example/thumb/a/a1/Otter_a.jpg/220px-Otter_a.jpg"
  width="220" height="147" srcset="//upload.wiki.example/thumb/a/a1/Otter_a.jpg/330px-Otter_a.jpg 1.5x,
  //upload.wiki.example/thumb/a/a1/Otter_a.jpg/440px-Otter_a.jpg 2x"></a></span>
  <div class="infobox-caption">A sea otter in <a href="/wiki/Morro_Bay">Morro Bay</a></div></td></tr></tbody></table>
<div class="thumb tright"><div class="thumbinner" style="width:222px;"><a href="/wiki/File:Range.png" class="image"><img
  alt="" src="//upload.wiki.example/thumb/b/b2/Range.png/220px-Range.png" class="thumbimage"></a>
  <div class="thumbcaption"><div class="magnify"><a href="/wiki/File:Range.png" title="Enlarge"></a></div>Range
  of the otter</div></div></div>
<figure class="mw-default-size" typeof="mw:File/Thumb"><a href="/wiki/File:Pup.jpg" class="mw-file-description"><img
  src="//upload.wiki.example/thumb/c/c3/Pup.jpg/250px-Pup.jpg" class="mw-file-element"></a>
  <figcaption>A pup<sup class="reference"><a href="#cite-1">[1]</a></sup></figcaption></figure>
<ul class="gallery mw-gallery-traditional"><li class="gallerybox"><div class="thumb"><span typeof="mw:File"><a
  href="/wiki/File:One.jpg"><img src="//upload.wiki.example/thumb/1/11/One.jpg/120px-One.jpg"></a></span></div>
  <div class="gallerytext">Eating a crab</div></li><li class="gallerybox"><div class="thumb"><span><a
  href="/wiki/File:Two.jpg"><img src="//upload.wiki.example/thumb/2/22/Two.jpg/120px-Two.jpg"></a></span></div>
  <div class="gallerytext"><p>Asleep in kelp</p></div></li></ul>
</div></div>
<footer><ul><li>Text is available under the <a rel="license"
  href="//creativecommons.org/licenses/by-sa/4.0/">licence</a>
</li></ul><a href="https://creativecommons.org/licenses/by-sa/4.0/"><img src="/static/cc-badge.png"
  alt="CC"></a></footer>
</body></html>"""

SHOP = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Oak chair</title>
<link rel="canonical" href="https://shop.example/products/oak-chair">
<meta property="og:image" content="http://shop.example/cdn/shop/products/chair_1200x1200.jpg?v=1">
<meta property="og:image:secure_url" content="https://shop.example/cdn/shop/products/chair_1200x1200.jpg?v=1">
<script type="application/ld+json">
{"@context": "http://schema.org/", "@type": "Product", "name": "Oak chair", "image": [
  "https://shop.example/cdn/shop/products/chair_1920x.jpg?v=1"], "offers": {"@type": "Offer", "price": "99"}}
</script></head><body><main>
<div class="product__media"><div class="product__media-item">
  <img class="lazyload" src="//shop.example/cdn/shop/products/chair_300x.jpg?v=1" alt="Oak chair, front"
   data-src="//shop.example/cdn/shop/products/chair_{width}x.jpg?v=1" data-widths="[180, 360, 540, 1080, 1920]"
   data-aspectratio="0.8" data-sizes="auto">
  <noscript><img src="//shop.example/cdn/shop/products/chair_1024x.jpg?v=1" alt="Oak chair, front"></noscript></div>
<div class="product__media-item"><img src="//shop.example/cdn/shop/products/back.jpg?v=2&amp;width=1946"
   srcset="//shop.example/cdn/shop/products/back.jpg?v=2&amp;width=246 246w,
     //shop.example/cdn/shop/products/back.jpg?v=2&amp;width=1946 1946w" alt="Oak chair, back" width="1946"></div>
<div class="woocommerce-product-gallery__image" data-thumb="/t/leg-100x100.jpg"><a href="/uploads/leg.jpg"><img
   src="/uploads/leg-600x600.jpg" title="leg" data-src="/uploads/leg.jpg" data-large_image="/uploads/leg.jpg"></a></div>
<div class="product__media-item"><img class="lazy" data-src="/t/{width}.jpg" src="/t/seat.jpg" alt="Seat"></div>
</div></main></body></html>"""

PHOTO_STREAM = f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>Photostream</title></head><body>
<div class="photo-list-view"><div class="photo-list-photo-view"><a href="/photos/ann/101/" title="Dawn, by Ann"><img
  src="{DOT}" class="lazyload" data-src="//live.photos.example/65/101_m.jpg"
  data-srcset="//live.photos.example/65/101_m.jpg 240w, //live.photos.example/65/101_b.jpg 1024w"></a>
  <noscript><img src="//live.photos.example/65/101_m.jpg" alt="Dawn"></noscript></div>
<div class="photo-list-photo-view"><img loading="lazy" src="/img/spacer.gif" data-original="/65/102_b.jpg"
  alt="Dusk"></div>
<div class="photo-list-photo-view"><img loading="lazy" src="/65/103_b.jpg" aria-label="Noon by Ann"></div>
<div class="photo-list-photo-view"><img src="{DOT}" data-lazy-src="/65/104_b.jpg" alt="Night"></div>
<div class="photo-list-photo-view"><img src="{DOT}" data-unknown="/65/105.jpg" alt="Rain"><noscript>
  <img src="/65/105_b.jpg" alt="Rain"></noscript></div>
<div><img src="{DOT}" alt="nothing"></div>
</div><img src="https://geo.example/p?s=1" width="0" height="0"><img src="https://b.example/t.gif" height="1px"
  width="1px">
<img src="/img/line.gif" width="600" height="1" alt="a rule">
<a rel="license" href="{CC_BY}"><img src="/img/by.svg" alt="CC BY"></a>
</body></html>"""

PICTURES = """<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>
<picture><source type="image/avif" srcset="/h/400.avif 400w, /h/800.avif 800w"><source type="image/webp"
  srcset="/h/400.webp 400w, /h/1600.webp 1600w"><img src="/h/800.jpg" alt="Hills"></picture>
<picture><source media="(max-width: 600px)" srcset="/w/small.jpg"><source media="(max-width:1200px)"
  srcset="/w/mid.jpg">
  <img src="/w/large.jpg" alt="Woods"></picture>
<picture><source media="(min-width: 600px)" srcset="/s/mid.jpg"><source media="(min-width: 1200px)"
  srcset="/s/large.jpg">
  <img src="/s/small.jpg" alt="Sea"></picture>
<picture><source srcset="/d/one.jpg, /d/two.jpg 2x, /d/three.jpg 3x"><img src="/d/one.jpg" alt="Dunes"></picture>
<img srcset="https://res.example/image/upload/c_fill,w_400,h_300/f.jpg 400w,
  https://res.example/image/upload/c_fill,w_1200,h_900/f.jpg 1200w" src="https://res.example/image/upload/f.jpg"
  alt="Fen">
<picture><img src="/only.jpg" alt="Only"></picture>
<picture><source data-srcset="/l/900.webp 900w" type="image/webp"><img data-srcset="/l/600.jpg 600w" src="data:,"
  alt="Lake"></picture>
</body></html>"""

BLOGGER = """<!DOCTYPE html><html><head><meta http-equiv="Content-Type" content="text/html; charset=UTF-8"></head><body>
<div class="post-body entry-content" id="post-body-42"><p>Words.</p>
<table align="center" cellpadding="0" class="tr-caption-container" style="margin-left: auto;"><tbody>
<tr><td style="text-align: center;"><a href="https://b.blog.example/img/a/AVvX/s4000/kiln.jpg" imageanchor="1"><img
  border="0" data-original-height="3000" data-original-width="4000" height="240"
  src="https://b.blog.example/img/a/AVvX/s320/kiln.jpg" width="320"></a></td></tr>
<tr><td class="tr-caption" style="text-align: center;">The kiln, before firing</td></tr></tbody></table>
<div class="separator" style="clear: both;"><a href="http://2.blog.example/-x/s1600-h/pot.jpg"><img
  src="http://2.blog.example/-x/s400/pot.jpg" alt="A pot"></a></div>
<div class="separator"><a href="http://2.blog.example/-y/s1600/Cup.JPG"><img
  src="http://2.blog.example/-y/s400/Cup.JPG"></a>
</div></div></body></html>"""

TUMBLR = """<!DOCTYPE html><html><head><meta charset="utf-8"><base target="_blank"></head><body><article class="post
  photo">
<div class="photo-wrapper"><a href="https://www.tumble.example/image/77"><img
  src="https://64.media.example/abc/s540x810/1.jpg" data-highres="https://64.media.example/abc/s1280x1920/1.jpg"
  alt="image"></a></div><div class="caption"><p>Rainy window, <b>again</b></p></div></article>
<article class="post photoset"><div class="html_photoset">
<figure class="tmblr-full" data-orig-height="900"><img src="https://64.media.example/def/s640/2.jpg"
  srcset="https://64.media.example/def/s75/2.jpg 75w, https://64.media.example/def/s2048/2.jpg 2048w"></figure>
<figure class="tmblr-full"><img src="https://64.media.example/ghi/s640/3.jpg"></figure></div>
<div class="caption"><p>Two from the roof</p></div></article></body></html>"""

NEWS = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Flood</title>
<link rel="amphtml" href="https://news.example/amp/flood"><meta property="og:image" content="/i/lead-1200.jpg">
<meta property="og:image:alt" content="A street under water"></head><body><article>
<figure class="lead"><picture><source srcset="/i/lead-480.jpg 480w, /i/lead-1200.jpg 1200w"><img src="/i/lead-480.jpg"
  alt="A flooded street"></picture><figcaption><span class="caption__text">Market Street on Friday</span><span
  class="caption__credit">Photograph: A. Person/Agency</span><button>Share</button></figcaption></figure>
<p>Text.</p><figure><div class="img-wrap"><img data-src="/i/map.png" src="/i/blank.gif" alt="Map"></div>
<figcaption>The river<br>and the town <cite class="photo-credit">Graphic: Desk</cite></figcaption></figure>
<figure class="quote"><blockquote>It rose.</blockquote><figcaption>A neighbour</figcaption></figure>
<figure><img src="/i/dam.jpg" alt="Dam"><figcaption>The dam
  (<a href="https://creativecommons.org/licenses/by/4.0/deed.en">CC BY 4.0</a>)</figcaption></figure>
<ul class="related"><li><a href="/a"><img src="/i/a-100.jpg" alt=""><span>Another story</span></a></li></ul>
</article></body></html>"""

OPEN_GRAPH = """<html prefix="og: https://ogp.me/ns#"><head><title>App</title><meta property="og:title" content="A
  view">
<meta property="og:image" content="https://cdn.app.example/v/1.jpg"><meta property="og:image:width" content="1200">
<meta property="og:image:alt" content="View from the pass"><meta property="og:image" content="/v/2.jpg">
<meta name="twitter:card" content="summary_large_image"></head><body><div id="root"></div>
<script src="/static/main.js"></script></body></html>"""

LINKED_DATA = """<!DOCTYPE html><html><head><meta charset="utf-8"><script type="application/ld+json">[
{"@context": "https://schema.org/", "@type": "ImageObject", "contentUrl": "https://arch.example/full/1.tif",
 "thumbnailUrl": "https://arch.example/t/1.jpg", "license": "https://creativecommons.org/licenses/by/4.0/",
 "acquireLicensePage": "https://arch.example/how", "creditText": "Archive", "caption": "A ferry, 1931"},
{"@context": "https://schema.org/", "@type": "ImageObject", "contentUrl": "https://arch.example/full/2.tif",
 "license": "All rights reserved", "name": "Quay", "description": "The old quay in snow"}]</script>
<script type="application/ld+json">{"@context": "https://schema.org", "@type": "NewsArticle", "image": [
 {"@type": "ImageObject", "url": "/img/16x9.jpg", "width": 1600}, {"@type": "ImageObject", "url": "/img/4x3.jpg"}]}
</script></head><body><p>See the pictures in the viewer.</p></body></html>"""

AMP = """<!doctype html><html \u26a1 lang="en"><head><meta charset="utf-8"><link rel="canonical"
 href="https://news.example/flood"><script async src="https://cdn.ampproject.example/v0.js"></script></head><body>
<figure><amp-img src="/i/lead-480.jpg" srcset="/i/lead-480.jpg 480w, /i/lead-1200.jpg 1200w" width="480" height="320"
 layout="responsive" alt="A flooded street"><noscript><img src="/i/lead-480.jpg" width="480" height="320"
 alt="A flooded street"></noscript></amp-img><figcaption>Market Street</figcaption></figure>
<amp-carousel><amp-img src="/i/c1.jpg" width="4" height="3" alt="One"></amp-img><amp-img src="/i/c2.jpg" width="4"
  height="3"
 alt="Two"></amp-img></amp-carousel><amp-anim src="/i/wave.gif" width="4" height="3" alt="Waves"></amp-anim>
<amp-pixel src="https://stats.example/p"></amp-pixel></body></html>"""

OLD_GALLERY = """<HTML><HEAD><TITLE>Photos</TITLE><BASE HREF="http://www.old.example/photos/1999/">
<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=iso-8859-1"></HEAD><BODY BGCOLOR=#FFFFFF>
<CENTER><TABLE BORDER=0><TR>
<TD><A HREF="big/z\xfcrich.jpg"><IMG SRC="thumb/z\xfcrich.jpg" ALT="Z\xfcrich \x96 the lake" BORDER=0></A>
<TD><A HREF="big/alp.html"><IMG SRC="thumb/alp.jpg" ALT="Alp"></A>
<TD><A HREF="big/cow%20bell.JPEG"><IMG SRC="thumb/cow.gif" WIDTH=100 HEIGHT=75></A>
<TR><TD COLSPAN=3><IMG SRC="/clear.gif" WIDTH=1 HEIGHT=1><IMG SRC="/bullet.gif" WIDTH=8 HEIGHT=8></TABLE></CENTER>
</BODY></HTML>"""

FORUM = """<!DOCTYPE html><html><head><meta
  charset="windows-1251"><title>\u0424\u043e\u0440\u0443\u043c</title></head><body>
<div class="message-body"><div class="bbImageWrapper" title="IMG_0042.jpg"><img
  src="/proxy.php?image=http%3A%2F%2Fx%2F1.jpg"
 data-src="http://x.example/1.jpg" data-zoom-image="" class="bbImage" alt="\u041a\u043e\u0442 \u043d\u0430
  \u043e\u043a\u043d\u0435"></div>
<a class="attachment" href="/attachments/dog.png" target="_blank"><span><img src="/data/attachments/dog-thumb.jpg"
 title="\u041f\u0451\u0441"></span></a><img src="/smilies/smile.png" alt=":)" width="20" height="20">
<a href="https://git.example/me/repo/blob/main/plot.png"><img src="https://raw.git.example/me/repo/main/plot.png"
 alt="Plot"></a></div></body></html>"""

PAGES: dict[str, tuple[str, bytes, str, Expected]] = {
    "WordPress blocks and classic captions": ("https://blog.example/2024/harbours/", WORDPRESS_BLOCKS.encode(), "", [
        ("https://blog.example/wp-content/uploads/logo.png", {"alt": "Our Blog"}, CC_BY),
        ("https://blog.example/wp-content/uploads/2024/05/boat.jpg",
         {"alt": "A red boat at low tide", "figcaption": "Low tide at Cancale"}, CC_BY),
        ("https://blog.example/wp-content/uploads/2024/05/net.jpg", {"figcaption": "Nets"}, CC_BY),
        ("https://blog.example/wp-content/uploads/2024/05/gull-1536x1024.jpg", {"alt": "Gull"}, CC_BY),
        ("https://blog.example/wp-content/uploads/fog-300x200.jpg", {"alt": "fog",
            "caption": "Fog over the locks"}, CC_BY),
        ("https://blog.example/wp-content/uploads/mast.jpg", {"caption": "A broken mast"}, CC_BY)]),
    "MediaWiki infobox, thumbs and gallery": ("https://wiki.example/wiki/Otter", MEDIAWIKI.encode(), "", [
        ("https://upload.wiki.example/thumb/a/a1/Otter_a.jpg/440px-Otter_a.jpg",
         {"caption": "A sea otter in Morro Bay"}, CC_BY_SA),
        ("https://upload.wiki.example/thumb/b/b2/Range.png/220px-Range.png", {"caption": "Range of the otter"},
  CC_BY_SA),
        ("https://upload.wiki.example/thumb/c/c3/Pup.jpg/250px-Pup.jpg", {"figcaption": "A pup[1]"}, CC_BY_SA),
        ("https://upload.wiki.example/thumb/1/11/One.jpg/120px-One.jpg", {"caption": "Eating a crab"}, CC_BY_SA),
        ("https://upload.wiki.example/thumb/2/22/Two.jpg/120px-Two.jpg", {"caption": "Asleep in kelp"}, CC_BY_SA)]),
    "shops": ("https://shop.example/products/oak-chair?variant=3", SHOP.encode(), "", [
        ("https://shop.example/cdn/shop/products/chair_1920x.jpg?v=1", {"alt": "Oak chair, front"}, None),
        ("https://shop.example/cdn/shop/products/back.jpg?v=2&width=1946", {"alt": "Oak chair, back"}, None),
        ("https://shop.example/uploads/leg.jpg", {"title": "leg"}, None),
        ("https://shop.example/t/seat.jpg", {"alt": "Seat"}, None),
        ("https://shop.example/cdn/shop/products/chair_1200x1200.jpg?v=1", {}, None)]),
    "a photo stream with lazy loading": ("https://photos.example/photos/ann", PHOTO_STREAM.encode(), "", [
        ("https://live.photos.example/65/101_b.jpg", {"title": "Dawn, by Ann"}, CC_BY),
        ("https://photos.example/65/102_b.jpg", {"alt": "Dusk"}, CC_BY),
        ("https://photos.example/65/103_b.jpg", {"aria-label": "Noon by Ann"}, CC_BY),
        ("https://photos.example/65/104_b.jpg", {"alt": "Night"}, CC_BY),
        ("https://photos.example/65/105_b.jpg", {"alt": "Rain"}, CC_BY),
        ("https://photos.example/img/line.gif", {"alt": "a rule"}, CC_BY)]),
    "picture elements": ("https://views.example/", PICTURES.encode(), "", [
        ("https://views.example/h/1600.webp", {"alt": "Hills"}, None),
        ("https://views.example/w/large.jpg", {"alt": "Woods"}, None),
        ("https://views.example/s/large.jpg", {"alt": "Sea"}, None),
        ("https://views.example/d/three.jpg", {"alt": "Dunes"}, None),
        ("https://res.example/image/upload/c_fill,w_1200,h_900/f.jpg", {"alt": "Fen"}, None),
        ("https://views.example/only.jpg", {"alt": "Only"}, None),
        ("https://views.example/l/900.webp", {"alt": "Lake"}, None)]),
    "Blogger": ("https://pots.blog.example/2020/01/kiln.html", BLOGGER.encode(), "", [
        ("https://b.blog.example/img/a/AVvX/s4000/kiln.jpg", {"caption": "The kiln, before firing"}, None),
        ("http://2.blog.example/-x/s400/pot.jpg", {"alt": "A pot"}, None),
        ("http://2.blog.example/-y/s1600/Cup.JPG", {}, None)]),
    "Tumblr": ("https://roofs.tumble.example/", TUMBLR.encode(), "", [
        ("https://64.media.example/abc/s1280x1920/1.jpg", {"alt": "image", "caption": "Rainy window, again"}, None),
        ("https://64.media.example/def/s2048/2.jpg", {}, None),
        ("https://64.media.example/ghi/s640/3.jpg", {}, None)]),
    "news": ("https://news.example/flood", NEWS.encode(), "", [
        ("https://news.example/i/lead-1200.jpg", {"alt": "A flooded street",
            "figcaption": "Market Street on Friday"}, None),
        ("https://news.example/i/map.png", {"alt": "Map", "figcaption": "The river and the town"}, None),
        ("https://news.example/i/dam.jpg", {"alt": "Dam", "figcaption": "The dam (CC BY 4.0)"},
         "https://creativecommons.org/licenses/by/4.0/deed.en"),
        ("https://news.example/i/a-100.jpg", {}, None)]),
    "Open Graph only": ("https://app.example/view", OPEN_GRAPH.encode(), "text/html; charset=utf-8", [
        ("https://cdn.app.example/v/1.jpg", {"og:image:alt": "View from the pass"}, None),
        ("https://app.example/v/2.jpg", {}, None)]),
    "JSON-LD only": ("https://arch.example/ferries", LINKED_DATA.encode(), "", [
        ("https://arch.example/full/1.tif", {"json-ld:caption": "A ferry, 1931"}, CC_BY),
        ("https://arch.example/full/2.tif", {"json-ld:description": "The old quay in snow",
            "json-ld:name": "Quay"}, None),
        ("https://arch.example/img/16x9.jpg", {}, None), ("https://arch.example/img/4x3.jpg", {}, None)]),
    "AMP": ("https://news.example/amp/flood", AMP.encode(), "", [
        ("https://news.example/i/lead-1200.jpg", {"alt": "A flooded street", "figcaption": "Market Street"}, None),
        ("https://news.example/i/c1.jpg", {"alt": "One"}, None),
            ("https://news.example/i/c2.jpg", {"alt": "Two"}, None),
        ("https://news.example/i/wave.gif", {"alt": "Waves"}, None)]),
    "an old gallery in Latin-1": ("http://old.example/p.htm", OLD_GALLERY.encode("latin-1"), "text/html", [
        ("http://www.old.example/photos/1999/big/z%C3%BCrich.jpg", {"alt": "Z\u00fcrich \u2013 the lake"}, None),
        ("http://www.old.example/photos/1999/thumb/alp.jpg", {"alt": "Alp"}, None),
        ("http://www.old.example/photos/1999/big/cow%20bell.JPEG", {}, None),
        ("http://www.old.example/bullet.gif", {}, None)]),
    "a forum in Windows-1251": ("https://forum.example/t/1", FORUM.encode("cp1251"), "", [
        ("http://x.example/1.jpg", {"alt": "\u041a\u043e\u0442 \u043d\u0430 \u043e\u043a\u043d\u0435"}, None),
        ("https://forum.example/attachments/dog.png", {"title": "\u041f\u0451\u0441"}, None),
        ("https://forum.example/smilies/smile.png", {"alt": ":)"}, None),
        ("https://raw.git.example/me/repo/main/plot.png", {"alt": "Plot"}, None)]),
}
