"""Everyday instructions to a chat model: explain, list, write, compare; each of a topic."""

from __future__ import annotations

import random

from profiler.tasks.templates import Request, TemplateTask

TEMPLATES = (
    "Explain {topic} to a ten-year-old.",
    "Explain in a few sentences what is interesting about {topic}.",
    "List five facts about {topic}.",
    "Give me three tips for someone who wants to learn about {topic}.",
    "Write a short poem about {topic}.",
    "Write a short story that begins with a conversation about {topic}.",
    "Write an email to a friend about {topic}.",
    "What are the advantages and disadvantages of {topic}?",
    "What is the most common mistake that people make about {topic}?",
    "Write the introduction of an essay on {topic}.",
    "Summarize what is known about {topic} in one paragraph.",
    "Give me ten questions to ask an expert on {topic}.",
    "Describe {topic} without using technical words.",
    "What do we know today about {topic} that people did not know a hundred years ago?",
    "Write a headline and a short news article about {topic}.",
    "What would you tell a beginner about {topic}?",
    "Plan a one-hour lesson about {topic}.",
    "Write a dialogue between two people who disagree about {topic}.",
    "Suggest a title and three chapters for a book about {topic}.",
    "What does our daily life have to do with {topic}?",
)
TOPICS = (
    "bees", "black holes", "bread baking", "bridges", "budgeting", "camping", "chess", "climate change", "coffee",
    "compost", "cycling to work", "democracy", "dinosaurs", "dreams", "earthquakes", "electric cars", "fairy tales",
    "folk music", "football", "friendship", "gardening", "gravity", "healthy eating", "home schooling", "honesty",
    "insomnia", "jazz", "languages", "libraries", "lighthouses", "maps", "meditation", "migration of birds",
    "museums", "night trains", "online shopping", "photography", "poetry", "public parks", "rain", "recycling",
    "remote work", "robots", "sailing", "sleep", "social media", "solar power", "spices", "stage fright", "swimming",
    "tea", "teamwork", "the Moon", "the Roman Empire", "the Silk Road", "the human heart", "the internet", "time zones",
    "tourism", "trees in cities", "vaccines", "volcanoes", "volunteering", "whales", "yoga",
)  # fmt: skip


def random_request(rng: random.Random) -> Request:
    """An instruction about a topic."""
    text = rng.choice(TEMPLATES).format(topic=rng.choice(TOPICS))
    return Request(content=text, text=text)


TASK = TemplateTask(name="instructions", make=random_request)
