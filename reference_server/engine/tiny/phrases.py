"""Plain sentences of our own in sixteen languages and ten scripts, two of them right to left.

Nothing here is quoted: simple things said simply, so that a model of two million parameters can say
them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrases:
    """One language: how to greet and be greeted, to ask for an echo or a sentence, and sentences.

    `echo` and `count` hold the places of what is asked for: `{}`, and `{a}`, `{b}`.
    """

    english: str
    hello: str
    reply: str
    thanks: str
    welcome: str
    echo: str
    count: str
    tell: str
    sentences: tuple[str, ...]


LANGUAGES: Mapping[str, Phrases] = {
    "en": Phrases(
        "English",
        "Hello!",
        "Hello! How can I help?",
        "Thank you!",
        "You are welcome.",
        "Say this: {}",
        "Count from {a} to {b}.",
        "Tell me something.",
        (
            "The river is wide and quiet.",
            "A small boat waits at the bridge.",
            "In the morning the garden is full of birds.",
            "The train to the north leaves at nine.",
            "She reads a letter by the window.",
            "Bread, cheese and two apples lie on the table.",
            "The old clock in the tower is always late.",
            "Snow fell all night, and the road is white.",
            "We walked along the shore until it was dark.",
            "My brother plays the piano on Sundays.",
        ),
    ),
    "fr": Phrases(
        "French",
        "Bonjour !",
        "Bonjour ! Que puis-je faire pour vous ?",
        "Merci !",
        "Je vous en prie.",
        "Répète exactement : {}",
        "Compte de {a} à {b}.",
        "Raconte-moi quelque chose.",
        (
            "La rivière est large et calme.",
            "Un petit bateau attend près du pont.",
            "Le matin, le jardin est plein d’oiseaux.",
            "Elle lit une lettre près de la fenêtre.",
            "Il a neigé toute la nuit.",
            "Mon frère joue du piano le dimanche.",
            "Le café est chaud et le pain est frais.",
            "L’été, nous dînons à l’ombre du vieux chêne.",
        ),
    ),
    "de": Phrases(
        "German",
        "Guten Tag!",
        "Guten Tag! Womit kann ich helfen?",
        "Danke!",
        "Gern geschehen.",
        "Wiederhole genau: {}",
        "Zähle von {a} bis {b}.",
        "Erzähl mir etwas.",
        (
            "Der Fluss ist breit und still.",
            "Ein kleines Boot wartet an der Brücke.",
            "Am Morgen ist der Garten voller Vögel.",
            "Der Zug nach Norden fährt um neun.",
            "Sie liest am Fenster einen Brief.",
            "Es hat die ganze Nacht geschneit.",
            "Mein Bruder spielt sonntags Klavier.",
            "Äpfel, Brötchen und Käse liegen auf dem Tisch.",
        ),
    ),
    "es": Phrases(
        "Spanish",
        "¡Hola!",
        "¡Hola! ¿En qué puedo ayudar?",
        "¡Gracias!",
        "De nada.",
        "Repite exactamente: {}",
        "Cuenta de {a} a {b}.",
        "Cuéntame algo.",
        (
            "El río es ancho y tranquilo.",
            "Una barca pequeña espera junto al puente.",
            "Por la mañana el jardín está lleno de pájaros.",
            "Ella lee una carta junto a la ventana.",
            "Nevó toda la noche.",
            "Mi hermano toca el piano los domingos.",
            "El pan y las manzanas están en la mesa.",
        ),
    ),
    "tr": Phrases(
        "Turkish",
        "Merhaba!",
        "Merhaba! Nasıl yardım edebilirim?",
        "Teşekkürler!",
        "Rica ederim.",
        "Aynen tekrar et: {}",
        "{a} ile {b} arasında say.",
        "Bana bir şey anlat.",
        (
            "Nehir geniş ve sakin.",
            "Köprünün yanında küçük bir tekne bekliyor.",
            "Sabahları bahçe kuşlarla dolu.",
            "Pencerenin yanında bir mektup okuyor.",
            "Bütün gece kar yağdı.",
            "Kardeşim pazar günleri piyano çalıyor.",
        ),
    ),
    "ru": Phrases(
        "Russian",
        "Привет!",
        "Привет! Чем помочь?",
        "Спасибо!",
        "Пожалуйста.",
        "Повтори точно: {}",
        "Считай от {a} до {b}.",
        "Расскажи что-нибудь.",
        (
            "Река широкая и тихая.",
            "Маленькая лодка ждёт у моста.",
            "Утром в саду много птиц.",
            "Поезд на север уходит в девять.",
            "Она читает письмо у окна.",
            "Всю ночь шёл снег.",
            "Мой брат играет на пианино.",
            "На столе хлеб, сыр и два яблока.",
        ),
    ),
    "el": Phrases(
        "Greek",
        "Γεια σου!",
        "Γεια σου! Πώς μπορώ να βοηθήσω;",
        "Ευχαριστώ!",
        "Παρακαλώ.",
        "Πες ακριβώς: {}",
        "Μέτρα από το {a} ως το {b}.",
        "Πες μου κάτι.",
        (
            "Το ποτάμι είναι πλατύ και ήσυχο.",
            "Μια μικρή βάρκα περιμένει στη γέφυρα.",
            "Το πρωί ο κήπος είναι γεμάτος πουλιά.",
            "Διαβάζει ένα γράμμα στο παράθυρο.",
            "Χιόνιζε όλη τη νύχτα.",
        ),
    ),
    "he": Phrases(
        "Hebrew",
        "שלום!",
        "שלום! איך אפשר לעזור?",
        "תודה!",
        "בבקשה.",
        "חזור בדיוק: {}",
        "ספור מ-{a} עד {b}.",
        "ספר לי משהו.",
        (
            "הנהר רחב ושקט.",
            "סירה קטנה מחכה ליד הגשר.",
            "בבוקר הגן מלא ציפורים.",
            "היא קוראת מכתב ליד החלון.",
            "כל הלילה ירד שלג.",
            "אחי מנגן בפסנתר בשבת.",
            "על השולחן לחם, גבינה ושני תפוחים.",
        ),
    ),
    "ar": Phrases(
        "Arabic",
        "مرحبا!",
        "مرحبا! كيف أساعدك؟",
        "شكرا!",
        "عفوا.",
        "كرر تماما: {}",
        "عد من {a} إلى {b}.",
        "احك لي شيئا.",
        (
            "النهر واسع وهادئ.",
            "قارب صغير ينتظر عند الجسر.",
            "في الصباح تمتلئ الحديقة بالطيور.",
            "هي تقرأ رسالة قرب النافذة.",
            "سقط الثلج طوال الليل.",
            "أخي يعزف على البيانو يوم الجمعة.",
            "على الطاولة خبز وجبن وتفاحتان.",
        ),
    ),
    "hi": Phrases(
        "Hindi",
        "नमस्ते!",
        "नमस्ते! मैं क्या मदद करूँ?",
        "धन्यवाद!",
        "कोई बात नहीं।",
        "ठीक यही कहो: {}",
        "{a} से {b} तक गिनो।",
        "मुझे कुछ बताओ।",
        (
            "नदी चौड़ी और शांत है।",
            "पुल के पास एक छोटी नाव है।",
            "सुबह बगीचे में बहुत पक्षी हैं।",
            "वह खिड़की के पास चिट्ठी पढ़ती है।",
            "मेरा भाई पियानो बजाता है।",
        ),
    ),
    "th": Phrases(
        "Thai",
        "สวัสดี!",
        "สวัสดี มีอะไรให้ช่วยไหม",
        "ขอบคุณ!",
        "ยินดี",
        "พูดตามนี้: {}",
        "นับจาก {a} ถึง {b}",
        "เล่าอะไรให้ฟังหน่อย",
        (
            "แม่น้ำกว้างและเงียบ",
            "เรือลำเล็กรออยู่ที่สะพาน",
            "ตอนเช้าในสวนมีนกมากมาย",
            "เธออ่านจดหมายที่หน้าต่าง",
        ),
    ),
    "ja": Phrases(
        "Japanese",
        "こんにちは！",
        "こんにちは！何をしましょうか。",
        "ありがとう！",
        "どういたしまして。",
        "そのまま言って：{}",
        "{a}から{b}まで数えて。",
        "何か話して。",
        (
            "川は広くて静かです。",
            "橋のそばで小さな舟が待っています。",
            "朝の庭には鳥がたくさんいます。",
            "彼女は窓のそばで手紙を読みます。",
            "一晩中雪が降りました。",
            "兄は日曜日にピアノを弾きます。",
        ),
    ),
    "zh": Phrases(
        "Chinese",
        "你好！",
        "你好！我能帮什么忙？",
        "谢谢！",
        "不客气。",
        "照样说：{}",
        "从{a}数到{b}。",
        "说点什么吧。",
        (
            "河水又宽又静。",
            "一只小船在桥边等着。",
            "早上花园里有很多鸟。",
            "她在窗边读信。",
            "下了一夜的雪。",
            "我哥哥星期天弹钢琴。",
        ),
    ),
    "ko": Phrases(
        "Korean",
        "안녕하세요!",
        "안녕하세요! 무엇을 도와드릴까요?",
        "고맙습니다!",
        "천만에요.",
        "그대로 말해: {}",
        "{a}부터 {b}까지 세어 줘.",
        "아무 말이나 해 줘.",
        (
            "강은 넓고 조용합니다.",
            "작은 배가 다리 옆에서 기다립니다.",
            "아침에는 정원에 새가 많습니다.",
            "그녀는 창가에서 편지를 읽습니다.",
            "밤새 눈이 내렸습니다.",
        ),
    ),
    "pl": Phrases(
        "Polish",
        "Dzień dobry!",
        "Dzień dobry! W czym mogę pomóc?",
        "Dziękuję!",
        "Proszę.",
        "Powtórz dokładnie: {}",
        "Policz od {a} do {b}.",
        "Opowiedz mi coś.",
        (
            "Rzeka jest szeroka i cicha.",
            "Mała łódka czeka przy moście.",
            "Rano ogród jest pełen ptaków.",
            "Ona czyta list przy oknie.",
            "Całą noc padał śnieg.",
        ),
    ),
    "pt": Phrases(
        "Portuguese",
        "Olá!",
        "Olá! Como posso ajudar?",
        "Obrigado!",
        "De nada.",
        "Repita exatamente: {}",
        "Conte de {a} até {b}.",
        "Conte-me alguma coisa.",
        (
            "O rio é largo e tranquilo.",
            "Um barco pequeno espera junto à ponte.",
            "De manhã o jardim está cheio de pássaros.",
            "Ela lê uma carta à janela.",
            "Nevou a noite toda.",
        ),
    ),
}

# English by rule: a subject, what it does, where; any three make a sentence.
SUBJECTS = (
    "the river",
    "a small boat",
    "the old teacher",
    "my sister",
    "the train",
    "a grey cat",
    "the baker",
    "our neighbour",
    "the moon",
    "a young fox",
    "the captain",
    "the cloud",
    "a robot",
    "the garden",
    "the letter",
    "the bird",
)
DEEDS = (
    "waits",
    "sings",
    "sleeps",
    "shines",
    "turns",
    "rests",
    "moves slowly",
    "arrives late",
    "stands still",
    "comes home",
    "grows quiet",
    "begins again",
    "looks bright",
    "stays warm",
)
PLACES = (
    "by the bridge",
    "under the trees",
    "near the sea",
    "in the morning light",
    "after the rain",
    "on the hill",
    "at the station",
    "behind the house",
    "before dinner",
    "in the north",
    "along the road",
    "in the first snow of the year",
)
_WORDS = (
    "apple between boat bread bridge candle cloud corner dance door dream early evening feather "
    "field fire forest friend garden glass gold green hammer harbour heavy hill house island "
    "kitchen ladder lamp leaf letter light little market meadow mirror moon morning mountain "
    "music narrow needle north ocean orange paper pencil people picture planet pocket quiet rain "
    "river road rose sail salt school shadow silver simple sister sleep snow song south spoon "
    "spring square star stone story street summer sun sweet table thunder ticket tower train tree "
    "valley velvet village violet voice wall water weather west wheel white wide wind window "
    "winter wonder wood yellow zebra"
)
WORDS = tuple(_WORDS.split())
